"""Checks of `contract.Ops`: detection."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.judging import Backend, assert_equal, assert_raises, judges, uniform


def iou(box: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union of two boxes, in float64."""
    box, other = box.astype("float64"), other.astype("float64")
    sides = np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2])
    intersection = sides.prod() if (sides > 0).all() else 0.0
    areas = (box[2:] - box[:2]).prod() + (other[2:] - other[:2]).prod()
    return float(intersection / (areas - intersection)) if areas > 0 else 0.0


def kept_rows(boxes: np.ndarray, group: np.ndarray, threshold: float, max_kept: int) -> np.ndarray:
    """The greedy rule, box by box."""
    limit = float(np.float32(threshold))
    kept: list[int] = []
    for row in range(len(boxes)):
        rivals = [boxes[other] for other in kept if group[other] == group[row]]
        if len(kept) < max_kept and all(iou(rival, boxes[row]) <= limit for rival in rivals):
            kept.append(row)
    return np.array(kept, "int64")


def suppressed(
    b: Backend, boxes: Any, group: Any, threshold: float, max_kept: int = 100
) -> np.ndarray:
    found = b.ops.suppress(
        b.ops.tensor(np.asarray(boxes, "float32").reshape(-1, 4)),
        b.ops.tensor(np.asarray(group, "int64")),
        threshold,
        max_kept,
    )
    return b.ops.to_numpy(found)


def random_boxes(count: int, seed: int) -> np.ndarray:
    corner = uniform((count, 2), low=-9, high=9, seed=seed)
    size = uniform((count, 2), low=0, high=9, seed=seed + 1)
    return np.concatenate((corner, corner + size), axis=1)


@judges("ops.take_where")
def takes_rows_where_the_condition_holds(b: Backend) -> None:
    for dtype in ("float32", "float64", "int64"):
        x = uniform((2, 3, 4, 5), dtype, -9, 9)
        for order in ((0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)):
            permuted, array = b.ops.tensor(x).permute(*order), x.transpose(order)
            for ndim in (1, 2, 3, 4):
                chosen = uniform(array.shape[:ndim], seed=ndim) > 0.5
                for condition in (chosen, np.zeros_like(chosen), np.ones_like(chosen)):
                    found = b.ops.take_where(permuted, b.ops.tensor(condition))
                    assert_equal(b.ops.to_numpy(found), array[condition])


@judges("ops.take_where")
def takes_rows_of_a_part_and_of_nothing(b: Backend) -> None:
    x = uniform((4, 6))
    condition = np.array([True, False])
    for part in (np.s_[1:3], np.s_[::2]):
        found = b.ops.take_where(b.ops.tensor(x)[part], b.ops.tensor(condition))
        assert_equal(b.ops.to_numpy(found), x[part][condition])
    for shape in ((0, 3), (3, 0)):
        condition = np.ones(shape[:1], bool)
        found = b.ops.take_where(b.ops.zeros(shape), b.ops.tensor(condition))
        assert_equal(b.ops.to_numpy(found), np.zeros(shape, "float32"))


@judges("ops.take_where")
def refuses_another_condition(b: Backend) -> None:
    x = b.ops.zeros((2, 3))
    for condition, text in (
        (b.ops.zeros((3,), "bool"), "(3,)"),
        (b.ops.zeros((2, 3, 1), "bool"), "(2, 3, 1)"),
        (b.ops.zeros((), "bool"), "()"),
        (b.ops.zeros((2,), "uint8"), "uint8"),
        (b.ops.zeros((2,), "int64"), "int64"),
    ):
        assert_raises(ValueError, lambda c=condition: b.ops.take_where(x, c), text)


@judges("ops.suppress")
def keeps_the_rows_of_the_greedy_rule(b: Backend) -> None:
    for grid in (False, True):
        for num_groups in (1, 3):
            boxes = random_boxes(120, seed=1)
            # On a grid boxes coincide, touch, lack area and meet thresholds exactly.
            boxes = (boxes.round() if grid else boxes).astype("float32")
            group = uniform((120,), "int64", 0, num_groups, seed=3) * 1000
            for threshold in (0.0, 0.25, 0.45, 0.5, 0.7, 1.0):
                for max_kept in (1, 7, 500):
                    assert_equal(
                        suppressed(b, boxes, group, threshold, max_kept),
                        kept_rows(boxes, group, threshold, max_kept),
                    )


@judges("ops.suppress")
def an_overlap_at_the_threshold_stays(b: Backend) -> None:
    halves = [[0, 0, 4, 2], [2, 0, 4, 2]]  # IoU 1/2
    for offset in (0.0, -1000.0):
        boxes = np.array(halves) + offset
        assert_equal(suppressed(b, boxes, [0, 0], 0.5), np.array([0, 1]))
        assert_equal(suppressed(b, boxes, [0, 0], 0.499), np.array([0]))


@judges("ops.suppress")
def overlaps_are_computed_in_float64(b: Backend) -> None:
    # 4800002 / 8000003 is 1e-9 above the float32 nearest to 0.6, and rounds to it in float32.
    boxes = [[0, 0, 1, 8000003], [0, 0, 1, 4800002]]
    assert_equal(suppressed(b, boxes, [0, 0], 0.6), np.array([0]))


@judges("ops.suppress")
def a_removed_box_removes_nothing(b: Backend) -> None:
    chain = [[0, 0, 10, 1], [4, 0, 14, 1], [8, 0, 18, 1]]  # IoU 3/7 between neighbours
    assert_equal(suppressed(b, chain, [5, 5, 5], 0.4), np.array([0, 2]))
    assert_equal(suppressed(b, chain, [5, 7, 5], 0.4), np.array([0, 1, 2]))


@judges("ops.suppress")
def what_lies_beyond_the_first_thousands_is_found(b: Backend) -> None:
    boxes = np.tile([0.0, 0, 20, 20], (5000, 1))
    boxes[[3000, 4999]] += [[0, 100, 0, 100], [0, 200, 0, 200]]
    assert_equal(suppressed(b, boxes, np.zeros(5000), 0.5, 50), np.array([0, 3000, 4999]))


@judges("ops.suppress")
def coordinates_of_any_size_keep_groups_apart(b: Backend) -> None:
    boxes = [[0, 0, 1e-30, 1], [0, 0, 1e-30, 1], [1e30, 0, 2e30, 1], [1e30, 0, 2e30, 1]]
    assert_equal(suppressed(b, boxes, [0, 0, 0, -1], 0.5), np.array([0, 2, 3]))


@judges("ops.suppress")
def of_nothing_nothing_is_kept(b: Backend) -> None:
    assert_equal(suppressed(b, [], [], 0.5), np.zeros(0, "int64"))


@judges("ops.suppress")
def refuses_what_does_not_fit(b: Backend) -> None:
    boxes, group = b.ops.zeros((2, 4)), b.ops.zeros((2,), "int64")
    for arguments, text in (
        ((b.ops.zeros((2, 4), "float64"), group, 0.5, 3), "float64"),
        ((b.ops.zeros((2, 5)), group, 0.5, 3), "(2, 5)"),
        ((boxes, b.ops.zeros((3,), "int64"), 0.5, 3), "(3,)"),
        ((boxes, b.ops.zeros((2,)), 0.5, 3), "float32"),
        ((boxes, group, 1.5, 3), "1.5"),
        ((boxes, group, float("nan"), 3), "nan"),
        ((boxes, group, 0.5, 0), "max_kept 0"),
    ):
        assert_raises(ValueError, lambda a=arguments: b.ops.suppress(*a), text)
