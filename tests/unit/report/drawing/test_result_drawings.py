"""`Result.plot` and `Result.crop`: what YOLOv5 writes on boxes, and what it cuts out of images."""

import dataclasses
import json

import numpy as np
import pytest

from duet.utils.colours import class_colour
from duet.utils.detect.media.source import Frame
from duet.utils.detect.results.result import Result
from duet.utils.geometry.detections import Detections
from tests.environments import shared_path


def stored() -> dict:
    return json.loads(shared_path("golden/inference/info.json").read_text())


def result_of(image, boxes, scores=None, classes=None, names=("person", "bus")):
    table = np.array(boxes, np.float32).reshape(-1, 4)
    scores = np.full(len(table), 0.87, np.float32) if scores is None else np.float32(scores)
    classes = np.zeros(len(table), np.int64) if classes is None else np.array(classes)
    return Result(Frame(image, "image"), Detections(table, scores, classes), tuple(names))


@pytest.fixture
def drawn_labels(monkeypatch):
    """The labels that `plot` has drawn."""
    drawn = []

    def draw_boxes(image, boxes_xyxy, class_index, labels, line_width):
        drawn[:] = labels
        return image

    monkeypatch.setattr("duet.utils.detect.results.result.draw_boxes", draw_boxes)
    return drawn


def test_crops_match_the_public_yolov5():
    image = np.load(shared_path("golden/inference/crop_image.npz"))["image_bgr"]
    settings = {"gain": 1.02, "pad": 10, "square": False}
    cases = [case for case in stored()["crop"] if settings.items() <= case.items()]
    assert cases
    for case in cases:
        left, top, right, bottom = case["x1y1x2y2"]
        (crop,) = result_of(image, case["box"]).crop()
        assert crop.shape == tuple(case["shape"])
        assert crop.sum() == case["sum"]
        assert crop[0, 0].tolist() == case["first_pixel"]
        assert crop[-1, -1].tolist() == case["last_pixel"]
        np.testing.assert_array_equal(crop, image[top:bottom, left:right])


def test_labels_match_the_public_yolov5(drawn_labels):
    for case in stored()["label_text"]:
        result_of(None, (0, 0, 9, 9), [case["confidence"]], names=[case["name"]]).plot()
        assert drawn_labels == [case["text"]]


def test_plot_draws_on_a_copy():
    image = np.zeros((480, 640, 3), np.uint8)
    result = result_of(image, [(100, 100, 300, 300)], classes=[1])
    drawn = result.plot(line_width=5)
    assert not image.any()
    assert ((drawn[200] == class_colour(1)).all(axis=1)).sum() == 10
    assert (drawn[70:98] != 0).any()
    assert not result.plot(labels=False)[:97].any()


def test_track_label_starts_with_its_number(drawn_labels):
    result = result_of(None, [(0, 0, 9, 9)] * 2, classes=[0, 1])
    result = dataclasses.replace(result, track_ids=np.array([7, 12]))
    result.plot()
    assert drawn_labels == ["7 person 0.87", "12 bus 0.87"]
    result.plot(scores=False)
    assert drawn_labels == ["7 person", "12 bus"]
