"""NMS in an exported graph finds what `utils/evaluation/nms.py` finds, of one class a box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from duet.models.export.recorded import detections
from duet.utils.evaluation.nms import SuppressionSettings, non_max_suppression
from tests.export.small_graphs import onnx, run_graph, small_graph

FREE = (0, 1)  # number of images and of rows, as with --dynamic


def nms_graph(
    shape: Sequence[int],
    free: Sequence[int] = (),
    top_per_class: int = 100,
    opset: int = 17,
    **settings: float,
) -> Any:
    wanted = {"confidence_threshold": 0.25, "iou_threshold": 0.5, "max_detections": 5, **settings}
    values = SuppressionSettings(multi_label=False, **wanted)
    return small_graph(
        lambda rows: (detections(rows, values, top_per_class),), shape, "float32", free, opset
    )


def found_in(rows: np.ndarray, **settings: float) -> np.ndarray:
    """Run NMS of the rows of one image, (N, 5 + C), through a graph; (K, 6)."""
    images = rows[None].astype(np.float32)
    return run_graph(nms_graph(images.shape, **settings))(images)[0][0]


def row(box_xyxy: Sequence[float], objectness: float, *classes: float) -> list[float]:
    """Return a row of a model: centre, size and scores."""
    left, top, right, bottom = box_xyxy
    centre = (left + right) / 2, (top + bottom) / 2
    return [*centre, right - left, bottom - top, objectness, *classes]


A, INSIDE_A = (0, 0, 10, 10), (0, 0, 10, 8)  # IoU of the first two: 0.8


@pytest.mark.parametrize(("iou_threshold", "number"), [(0.8, 2), (0.79, 1)])
def test_a_box_whose_iou_is_the_threshold_stays(iou_threshold, number):
    rows = np.array([row(A, 0.75, 1.0), row(INSIDE_A, 0.5, 1.0)])
    assert np.count_nonzero(found_in(rows, iou_threshold=iou_threshold)[:, 4]) == number


@pytest.mark.parametrize("iou_threshold", [0.45, 0.3, 0.6, 0.65, 0.7, 0.8, 0.5])
@pytest.mark.parametrize("length", [20, 140])
def test_at_the_threshold_itself_it_decides_as_detect_does(iou_threshold, length):
    """Of these whole pixels the IoU is a threshold that float32 holds only nearly."""
    rows = [row((0, 0, length, 8), 0.75, 1.0), row((0, 0, length * iou_threshold, 8), 0.5, 1.0)]
    check_image(
        found_in(np.array(rows), iou_threshold=iou_threshold),
        np.array(rows, np.float32),
        {"confidence_threshold": 0.25, "iou_threshold": iou_threshold, "max_detections": 5},
    )


def test_the_threshold_of_iou_is_never_zero():
    """OpenVINO removes a box whose IoU is the threshold: all that only touch, or lie apart."""
    model = nms_graph((1, 8, 7), iou_threshold=0.0)
    (node,) = (node for node in model.graph.node if node.op_type == "NonMaxSuppression")
    (stored,) = (x for x in model.graph.initializer if x.name == node.input[3])
    assert 0 < onnx.numpy_helper.to_array(stored)[0] < 1e-30


def test_equal_scores_keep_the_order_of_their_rows():
    apart = [(40 * n, 0, 40 * n + 10, 10) for n in (3, 0, 4, 1)]
    rows = [row(box, 0.5, *(np.arange(3) == n % 3)) for n, box in enumerate(apart)]
    found = found_in(np.array([*rows, row(apart[0], 0.5, 1.0, 0, 0)]))
    np.testing.assert_array_equal(found[:4, :4], apart)
    np.testing.assert_array_equal(found[:4, 5], [0, 1, 2, 0])
    assert not found[4:].any()  # of two boxes with one score the earlier one stayed


def crowded_rows(images: int, number: int, num_classes: int, seed: int) -> np.ndarray:
    """Return rows (B, N, 5 + C) that overlap a lot, with few different scores."""
    rng = np.random.default_rng(seed)
    centres, sizes = (
        rng.uniform(20, 80, (images, number, 2)),
        rng.uniform(4, 60, (images, number, 2)),
    )
    scores = rng.integers(0, 9, (images, number, 1 + num_classes)) / 8
    return np.concatenate((centres, sizes, scores), axis=2).astype(np.float32)


@pytest.mark.parametrize("class_agnostic", [False, True])
@pytest.mark.parametrize("free", [(), FREE])
def test_many_overlapping_boxes_are_those_of_numpy(free, class_agnostic):
    settings = {
        "confidence_threshold": 0.25,
        "iou_threshold": 0.45,
        "class_agnostic": class_agnostic,
        "max_detections": 60,
    }
    run = run_graph(nms_graph((4, 400, 5 + 12), free, **settings))
    images = crowded_rows(4, 400, 12, seed=7)
    images[2, :, 4] = 0  # nothing in the third
    found = run(images)[0]
    assert found.shape == (4, 60, 6)
    if free:
        more = np.concatenate((images, crowded_rows(4, 30, 12, seed=8)), axis=1)
        check_image(run(more[:2])[0][1], more[1], settings)
    for image, rows in zip(found, images, strict=True):
        check_image(image, rows, settings)


def check_image(found: np.ndarray, rows: np.ndarray, settings: dict[str, float]) -> None:
    wanted = non_max_suppression(rows, SuppressionSettings(multi_label=False, **settings))
    number = len(wanted.scores)
    np.testing.assert_array_equal(found[:number, :4], wanted.boxes_xyxy)
    np.testing.assert_array_equal(found[:number, 4], wanted.scores)
    np.testing.assert_array_equal(found[:number, 5], wanted.class_index)
    assert not found[number:].any()
