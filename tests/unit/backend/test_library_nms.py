"""A library's kernel suppresses only where it keeps the exact rows, and a log line says so."""

import logging

import numpy as np
import pytest

from backend.greedy_nms import suppress_greedily
from backend.library_nms import choose, is_exact, numpy_only, with_kernel


def kernel_of(dtype, removes=np.greater):
    """A kernel of one group in NumPy, box by box."""

    def kernel(boxes_xyxy, iou_threshold):
        boxes = boxes_xyxy.astype(dtype)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        alive, kept = np.ones(len(boxes), bool), []
        for row in range(len(boxes)):
            if alive[row]:
                kept.append(row)
                sides = np.minimum(boxes[row, 2:], boxes[row:, 2:])
                sides = sides - np.maximum(boxes[row, :2], boxes[row:, :2])
                intersection = sides.clip(0).prod(axis=1)
                union = area[row] + area[row:] - intersection
                iou = np.divide(intersection, union, out=np.zeros_like(union), where=union > 0)
                alive[row:] &= ~removes(iou, dtype(iou_threshold))
        return np.array(kept[::-1], np.int32)  # libraries differ in order and dtype

    return kernel


def boxes_and_groups(scale=1.0):
    random = np.random.Generator(np.random.Philox(3))
    corner, size = random.uniform(-50, 50, (300, 2)), random.uniform(0, 60, (300, 2))
    boxes_xyxy = np.concatenate((corner, corner + size), axis=1) * scale
    return boxes_xyxy.astype(np.float32), random.integers(-2, 3, 300) * 7


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-6])
@pytest.mark.parametrize("max_kept", [1, 20, 300])
def test_a_kernel_without_groups_keeps_the_rows_of_the_exact_form(scale, max_kept):
    boxes_xyxy, group = boxes_and_groups(scale)
    suppress = with_kernel(kernel_of(np.float64))
    found = suppress(boxes_xyxy, group, 0.5, max_kept)
    np.testing.assert_array_equal(found, suppress_greedily(boxes_xyxy, group, 0.5, max_kept))


def test_boxes_that_cannot_be_moved_exactly_do_not_reach_the_kernel():
    def kernel(boxes_xyxy, iou_threshold):
        raise AssertionError("the kernel was called")

    # 1e9 apart, 1e-9 would be rounded away.
    boxes_xyxy = np.array([[0, 0, 1e9, 1], [1e-9, 0, 1e9, 1]], np.float32)
    rows = with_kernel(kernel)(boxes_xyxy, np.array([0, 1]), 0.5, 5)
    np.testing.assert_array_equal(rows, [0, 1])
    empty = with_kernel(kernel)(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), 0.5, 5)
    assert len(empty) == 0


def test_the_probe_accepts_float64_and_sees_each_deviation():
    assert is_exact(with_kernel(kernel_of(np.float64)))
    assert not is_exact(with_kernel(kernel_of(np.float32)))
    assert not is_exact(with_kernel(kernel_of(np.float64, removes=np.greater_equal)))


def test_an_exact_kernel_is_chosen_and_named(caplog):
    caplog.set_level(logging.INFO)
    suppress = choose("a library", "cuda:0", lambda: kernel_of(np.float64))
    assert suppress is not suppress_greedily
    assert caplog.messages == ["suppression of overlaps on cuda:0: a library"]


def missing():
    raise ImportError("No module named 'a_library'")


def broken():
    raise RuntimeError("no kernel for kDouble\nand where that was")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (missing, "No module named 'a_library'"),
        (broken, "no kernel for kDouble"),
        (lambda: kernel_of(np.float32), "differs from the exact rule"),
    ],
)
def test_numpy_runs_where_a_library_cannot_and_the_line_says_why(caplog, build, reason):
    caplog.set_level(logging.INFO)
    assert choose("a library", "cpu", build) is suppress_greedily
    assert caplog.messages == [f"suppression of overlaps on cpu: NumPy (a library: {reason})"]


def test_numpy_alone_says_why(caplog):
    caplog.set_level(logging.INFO)
    assert numpy_only("cpu", "no kernel") is suppress_greedily
    assert caplog.messages == ["suppression of overlaps on cpu: NumPy (no kernel)"]
