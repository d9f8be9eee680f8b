"""Graphs of whole models with NMS and letterbox find what the model itself finds."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
import pytest

from backend import autograd, ops
from models.detector import images_to_tensor
from models.export.job import metadata_for
from models.inference.predictor import load_detector
from tests.export.recorded_files import write_graphs
from tests.export.small_graphs import checked, run_graph
from tests.shared_files import shared_path
from tests.tiny_weights import noise, tiny_checkpoint, write_tiny_weights
from utils.cli.export_config import parse_export_flags
from utils.data.image.letterbox import (
    fit_letterbox,
    letterbox,
    letterbox_to_image,
    resize_to_detect,
)
from utils.detections import Detections
from utils.evaluation.nms import SuppressionSettings, non_max_suppression
from utils.export.metadata import DETECTIONS, EFFICIENT, PIXELS, metadata_of
from utils.weights.load import load_weights

SIDE, REAL_SIDE, TOP = 64, 256, 20
NMS = ["--nms", "--topk-all", str(TOP)]
FLAGS = {
    "static": [*NMS, "--batch-size", "2"],
    "agnostic": [*NMS, "--agnostic-nms"],
    "dynamic": [*NMS, "--dynamic"],
    "letterbox": ["--letterbox"],
    "both": [*NMS, "--letterbox"],
    "half": [*NMS, "--letterbox", "--half"],
    "efficient": [*NMS, "--letterbox", "--efficient-nms"],
}
IMAGES = ["000000000009", "000000000025", "000000000034"]  # 640 px: shrunk by more than two


class Graphs(NamedTuple):
    """Graphs by name, and the model that all are of."""

    files: dict[str, bytes]
    model: object


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    weights = write_tiny_weights(folder)
    return graphs(folder, weights, SIDE, FLAGS)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    weights = shared_path("weights/coco-yolov5n-v6.pt")
    return graphs(folder, weights, REAL_SIDE, {name: FLAGS[name] for name in ("agnostic", "both")})


def graphs(folder, weights, side, flags):
    common = ["--weights", str(weights), "--imgsz", str(side)]
    files = write_graphs(folder, {name: [*common, *words] for name, words in flags.items()})
    contents = {name: path.read_bytes() for name, path in files.items()}
    return Graphs(contents, load_detector(load_weights(weights), "cpu", fold=True))


def rows_of(model, images):
    """Return what a model predicts in images (B, H, W, 3), (B, N, 5 + C)."""
    with autograd.no_grad():
        raw = model(images_to_tensor(images.transpose(0, 3, 1, 2), "cpu"))
        return ops.to_numpy(model.decode(raw))


def found_by_numpy(rows, class_agnostic=False):
    settings = SuppressionSettings(0.25, 0.45, class_agnostic, None, TOP, multi_label=False)
    return non_max_suppression(rows, settings)


def found_by_graph(output):
    assert output.shape == (TOP, 6)
    used = output[:, 4] > 0
    assert not output[~used].any()
    return Detections(output[used, :4], output[used, 4], output[used, 5].astype(np.int64))


def assert_same(found, wanted, pixels, scores):
    np.testing.assert_array_equal(found.class_index, wanted.class_index)
    np.testing.assert_allclose(found.boxes_xyxy, wanted.boxes_xyxy, atol=pixels)
    np.testing.assert_allclose(found.scores, wanted.scores, atol=scores)


def as_floats(images):
    return images.transpose(0, 3, 1, 2).astype(np.float32) / 255


def test_nms_of_a_batch_finds_what_numpy_finds_in_each_image(tiny):
    images = np.stack([noise(SIDE, SIDE, seed) for seed in (1, 2)])
    (outputs,) = run_graph(tiny.files["static"])(as_floats(images))
    for output, rows in zip(outputs, rows_of(tiny.model, images), strict=True):
        wanted = found_by_numpy(rows)
        assert len(wanted.scores) > 3
        # The logits of these weights are in the thousands.
        assert_same(found_by_graph(output), wanted, pixels=0.01, scores=0.001)


@pytest.mark.parametrize("shape", [(1, 32, 96), (3, 64, 48)])
def test_nms_takes_any_number_and_size_of_images(tiny, shape):
    images = np.stack([noise(*shape[1:], seed) for seed in range(shape[0])])
    (outputs,) = run_graph(tiny.files["dynamic"])(as_floats(images))
    for output, rows in zip(outputs, rows_of(tiny.model, images), strict=True):
        assert_same(found_by_graph(output), found_by_numpy(rows), pixels=0.01, scores=0.001)


@pytest.mark.parametrize("shape", [(64, 48), (96, 128), (40, 64)], ids=str)
def test_letterbox_and_nms_find_boxes_of_the_image(tiny, shape):
    """These sizes are not resized, or halved, which is exact."""
    image = noise(*shape)
    placement = fit_letterbox(shape, (SIDE, SIDE))
    view = letterbox(image, placement, resize_to_detect)
    wanted = found_by_numpy(rows_of(tiny.model, view[None])[0])
    wanted = wanted._replace(boxes_xyxy=letterbox_to_image(wanted.boxes_xyxy, placement))
    assert len(wanted.scores) > 3
    (output,) = run_graph(tiny.files["both"])(image)
    assert_same(found_by_graph(output[0]), wanted, pixels=0.02, scores=0.001)


@pytest.mark.parametrize("name", [name for name in FLAGS if name != "efficient"])
def test_a_graph_is_whole_and_loads_without_a_warning(tiny, name, capfd):
    checked(tiny.files[name])
    run_graph(tiny.files[name])
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


@pytest.mark.parametrize("image_name", IMAGES)
def test_boxes_of_photographs_are_those_of_the_model(real, image_name):
    path = shared_path(f"data/coco256/images/train2017/{image_name}.jpg")
    image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
    placement = fit_letterbox(image.shape[:2], (REAL_SIDE, REAL_SIDE))
    view = letterbox(image, placement, resize_to_detect)
    (rows,) = rows_of(real.model, view[None])
    wanted = found_by_numpy(rows, class_agnostic=True)
    assert len(wanted.scores) > 0
    (output,) = run_graph(real.files["agnostic"])(as_floats(view[None]))
    assert_same(found_by_graph(output[0]), wanted, pixels=0.01, scores=1e-4)
    wanted = found_by_numpy(rows)
    wanted = wanted._replace(boxes_xyxy=letterbox_to_image(wanted.boxes_xyxy, placement))
    (output,) = run_graph(real.files["both"])(image)
    # The graph's image is not the same in some pixels, by one grey level.
    assert_same(found_by_graph(output[0]), wanted, pixels=1.5, scores=0.01)


def test_metadata_says_what_goes_in_and_comes_out(tmp_path):
    checkpoint = tiny_checkpoint(tmp_path)
    model = load_detector(checkpoint, "cpu")

    def metadata(*words):
        config = parse_export_flags(["--weights", "w.pt", "--imgsz", "64", "96", *words])
        return metadata_of(metadata_for(config, checkpoint, model).texts())

    told = metadata("--letterbox", "--nms", "--conf-thres", "0.3", "--topk-all", "9")
    assert (told.image, told.output, told.image_size) == (PIXELS, DETECTIONS, (64, 96))
    wanted = SuppressionSettings(0.3, 0.45, False, None, 9, multi_label=False)
    assert SuppressionSettings(**told.suppression) == wanted
    assert metadata("--letterbox").suppression == {}
    told = metadata("--nms", "--efficient-nms")
    assert told.output == EFFICIENT
