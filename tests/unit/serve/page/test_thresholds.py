"""The sliders of the page give at any threshold the boxes that the server gives."""

import numpy as np
import pytest

from tests.serve_answers import write_image
from tests.serve_stand_in import as_json
from utils.data.image.letterbox import fit_letterbox, letterbox_to_image
from utils.evaluation.nms import SuppressionSettings, non_max_suppression

NUM_CLASSES = 4
PLACEMENT = fit_letterbox((375, 500), (480, 640))


def predictions(count, seed):
    """Rows (N, 5 + C) of a network: clusters of boxes, many of them over the image's edge."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform((0, 0), (640, 480), (12, 2))[rng.integers(0, 12, count)]
    sizes = rng.uniform(60, 240, (12, 2))[rng.integers(0, 12, count)]
    boxes = np.hstack(
        (centres + rng.normal(0, 12, (count, 2)), sizes + rng.normal(0, 9, (count, 2)))
    )
    scores = rng.uniform(0, 1, (count, 1 + NUM_CLASSES)) ** (0.7, *[1.5] * NUM_CLASSES)
    return np.hstack((boxes, scores)).astype(np.float32)


def found_by_server(rows, conf=0.25, iou=0.45, max_det=1000, agnostic=False, classes=None):
    """Its answer; with the boxes that NMS compares where nothing is suppressed."""
    settings = SuppressionSettings(conf, iou, agnostic, classes, max_det, multi_label=False)
    found = non_max_suppression(rows, settings)
    boxes = letterbox_to_image(found.boxes_xyxy, PLACEMENT)
    columns = boxes, found.scores, found.class_index, found.boxes_xyxy
    records = []
    for box, score, index, compared in zip(*(c.tolist() for c in columns), strict=True):
        record = {"box_xyxy": box, "score": score, "class_index": index, "name": f"class {index}"}
        records.append({**record, "network_xyxy": compared} if iou == 1 else record)
    return records


@pytest.fixture
def image(tmp_path):
    return write_image(tmp_path / "image.png", 375, 500)


def show(page, site, image, rows):
    """Have the page ask about an image in which a network predicts some rows."""

    def answer(asked):
        query = {"conf": float(asked.query["conf"]), "iou": float(asked.query["iou"])}
        detections = found_by_server(rows, **query, max_det=int(asked.query["max_det"]))
        size = {"width": 500, "height": 375}
        return as_json({"image": size, "detections": detections, "milliseconds": {"total": 1}})

    site.models = [{"name": "m", "task": "detect", "class_names": ["x"] * NUM_CLASSES}]
    site.answer, site.asked[:] = answer, []
    page.open()
    page.choose(image)
    assert len(site.asked) == 1


def test_sliders_and_filter_give_exactly_the_boxes_of_the_server(page, site, image):
    rows = predictions(400, 0)
    show(page, site, image, rows)
    for agnostic in (False, True):
        page.set("agnostic", agnostic)
        for conf in (0.01, 0.07, 0.4):
            page.set("confidence", conf)
            for iou in (0.0, 0.13, 0.45, 1.0):
                page.set("overlap", iou)
                expected = found_by_server(rows, conf, iou, agnostic=agnostic)
                shown = page.copied()["detections"]
                compared = [{**found, "network_xyxy": None} for found in (*expected, *shown)]
                assert compared[: len(expected)] == compared[len(expected) :], (conf, iou)
                assert len(page.rows()) == len(expected)
    assert len(site.asked) == 1  # the sliders asked for nothing


def test_boxes_beyond_the_edge_are_compared_as_the_network_gave_them(page, site, image):
    """From -100 to 100 and from -30 to 70: IoU 100/200, and 70/100 once cut off at 0."""
    boxes = [[0, 240, 200, 50], [20, 240, 100, 50]]
    rows = np.float32(
        [[*box, score, 1, 0, 0, 0] for box, score in zip(boxes, (0.9, 0.8), strict=True)]
    )
    show(page, site, image, rows)
    for iou, count in ((0.49, 1), (0.51, 2)):
        page.set("overlap", iou)
        assert len(page.rows()) == len(found_by_server(rows, 0.25, iou)) == count


def test_a_list_that_is_cut_off_limits_the_slider_to_what_is_known(page, site, image):
    rows = predictions(6000, 1)
    rows[:, 4] = rows[:, 4] * 0.5 + 0.5
    show(page, site, image, rows)
    lowest = page.evaluate("Number(confidence.min)")
    assert lowest > 0.01
    page.set("confidence", 0.0)
    assert page.evaluate("Number(confidence.value)") == lowest
    assert "best 5,000 boxes" in page.evaluate("limit.textContent")
    page.set("overlap", 1.0)
    expected = found_by_server(rows, lowest, 1.0)
    assert len(page.rows()) == len(expected) == 1000  # of --max-det
    page.set("overlap", 0.5)
    shown = page.copied()["detections"]
    expected = found_by_server(rows, lowest, 0.5)
    assert [found["box_xyxy"] for found in shown] == [found["box_xyxy"] for found in expected]
    show(page, site, image, rows[:10])
    assert page.evaluate("[Number(confidence.min), limit.hidden]") == [0.01, True]
    assert page.evaluate("Number(confidence.value)") == 0.25


def test_a_class_that_is_left_out_removes_no_boxes_of_others(page, site, image):
    rows = predictions(300, 2)
    show(page, site, image, rows)
    page.set("agnostic", True)
    page.evaluate("document.querySelector('#classes [data-class=\"1\"] input').click()")
    expected = found_by_server(rows, agnostic=True, classes=[0, 2, 3])
    shown = page.copied()["detections"]
    assert [found["box_xyxy"] for found in shown] == [found["box_xyxy"] for found in expected]
    counts = page.evaluate(
        "[...document.querySelectorAll('#classes .check')].map((row) => row.innerText.split('\\n'))"
    )
    everything = found_by_server(rows, agnostic=True)
    for row in counts:
        index = int(row[0].removeprefix("class "))
        assert int(row[1]) == sum(found["class_index"] == index for found in everything)
