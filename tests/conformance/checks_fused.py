"""Checks of `contract.Fused`."""

from __future__ import annotations

import numpy as np

from tests.conformance.judging import (
    Backend,
    assert_equal,
    assert_raises,
    central_differences,
    judges,
    uniform,
)

EPS = 1e-7
# Boxes with equal edges: all of them, or three.
TIES = np.array([[5, 5, 2, 4], [5, 5, 2, 4]], "float64")
TIES_TARGET = np.array([[5, 5, 2, 4], [6, 5, 4, 4]], "float64")


def terms(pred: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return IoU, centre distance over hull diagonal, both squared, and the aspect term."""
    low = np.stack([boxes[:, :2] - boxes[:, 2:] / 2 for boxes in (pred, target)])
    high = np.stack([boxes[:, :2] + boxes[:, 2:] / 2 for boxes in (pred, target)])
    intersection = np.clip(high.min(axis=0) - low.max(axis=0), 0, None).prod(axis=1)
    areas = pred[:, 2:].prod(axis=1) + target[:, 2:].prod(axis=1)
    iou = intersection / (areas - intersection + EPS)
    hull = high.max(axis=0) - low.min(axis=0)
    distance = ((pred[:, :2] - target[:, :2]) ** 2).sum(axis=1) / ((hull**2).sum(axis=1) + EPS)
    angles = [np.arctan(boxes[:, 2] / (boxes[:, 3] + EPS)) for boxes in (pred, target)]
    return iou, distance, 4 / np.pi**2 * (angles[1] - angles[0]) ** 2


def trade_off(pred: np.ndarray, target: np.ndarray) -> np.ndarray:
    iou, _, aspect = terms(pred, target)
    return np.asarray(aspect / (aspect + 1 - iou + EPS))


def with_trade_off(pred: np.ndarray, target: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    iou, distance, aspect = terms(pred, target)
    return np.asarray(iou - distance - alpha * aspect)


def pairs(count: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (count, 4) cxcywh twice, sides from 1 to 5; with a wider spread more are apart."""
    pred, target = (
        np.concatenate(
            (
                uniform((count, 2), low=-spread, high=spread, seed=seed),
                uniform((count, 2), low=1, high=5, seed=seed + 1),
            ),
            axis=1,
        )
        for seed in (0, 2)
    )
    return pred, target


CASES = {
    "overlapping": pairs(40, 1),
    "mostly apart": pairs(40, 8),
    "nested": (pairs(20, 1)[0], pairs(20, 1)[0] * [1, 1, 0.5, 0.3]),
    "ties": (TIES, TIES_TARGET),
    "one": (TIES[:1] + 1.0, TIES_TARGET[1:2]),
}


@judges("fused.complete_iou")
def value_of_the_formula(b: Backend) -> None:
    # Edges are differences of numbers up to 12 and areas differences of products: some digits
    # are lost, in float32 to 1e-6 of 1.
    for tolerance, dtype in ((4e-6, "float32"), (1e-13, "float64")):
        for pred, target in CASES.values():
            found = b.fused.complete_iou(
                b.ops.tensor(pred.astype(dtype)), b.ops.tensor(target.astype(dtype))
            )
            wanted = with_trade_off(pred, target, trade_off(pred, target))
            assert_equal(b.ops.to_numpy(found), wanted.astype(dtype), tolerance)


def gradient(b: Backend, pred: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    variable = b.autograd.variable(pred)
    iou = b.fused.complete_iou(variable, b.ops.tensor(target))
    total = b.ops.sum(iou * b.ops.tensor(weights.astype(pred.dtype)))
    return b.ops.to_numpy(b.autograd.gradients(total, [variable])[0])


@judges("fused.complete_iou")
def gradient_with_the_trade_off_held_constant(b: Backend) -> None:
    for name, (pred, target) in CASES.items():
        weights = uniform((len(pred),), low=0.5, high=1.5, seed=9)
        alpha = trade_off(pred, target)

        def total(
            moved: np.ndarray,
            target: np.ndarray = target,
            alpha: np.ndarray = alpha,
            weights: np.ndarray = weights,
        ) -> float:
            return float((with_trade_off(moved, target, alpha) * weights).sum())

        # At a tie central differences give the mean of the one-sided slopes, as half of the
        # gradient for each box does. Their error is the step instead of its square.
        (wanted,) = central_differences(total, [pred])
        tolerance = 1e-4 if name == "ties" else 1e-7
        assert_equal(gradient(b, pred, target, weights), wanted, tolerance)
        narrow = gradient(b, *(x.astype("float32") for x in (pred, target)), weights)
        assert_equal(narrow, wanted.astype("float32"), max(tolerance, 1e-5))


@judges("fused.complete_iou")
def boxes_that_touch_are_drawn_together(b: Backend) -> None:
    # Boxes that touch have the gradient of a slight overlap, as `ops.clamp` has at its limit.
    target, one = np.array([[7.0, 6.0, 2.0, 1.0]]), np.ones(1)
    touching = gradient(b, TIES[:1], target, one)
    assert_equal(touching, gradient(b, TIES[:1] + [[1e-9, 0, 0, 0]], target, one), 1e-7)
    apart = gradient(b, TIES[:1] - [[1e-9, 0, 0, 0]], target, one)
    assert np.abs(touching - apart).max() > 0.01


@judges("fused.complete_iou")
def no_gradient_reaches_the_target(b: Backend) -> None:
    pred, target = (b.autograd.variable(boxes) for boxes in CASES["overlapping"])
    total = b.ops.sum(b.fused.complete_iou(pred, target))
    of_pred, of_target = map(b.ops.to_numpy, b.autograd.gradients(total, [pred, target]))
    assert np.abs(of_pred).max() > 0
    assert_equal(of_target, np.zeros_like(of_target))


@judges("fused.complete_iou")
def boxes_without_area_give_finite_values(b: Backend) -> None:
    sides = np.array([0, 1e-12, 1e-3, 1, 1e4])
    width, height = (grid.ravel() for grid in np.meshgrid(sides, sides))
    boxes = np.stack([np.zeros_like(width), np.zeros_like(width), width, height], axis=1)
    pred, target = np.repeat(boxes, len(boxes), axis=0), np.tile(boxes, (len(boxes), 1))
    for dtype in ("float32", "float64"):
        pair = pred.astype(dtype), target.astype(dtype)
        found = b.ops.to_numpy(b.fused.complete_iou(*map(b.ops.tensor, pair)))
        assert np.isfinite(found).all()
        assert (found > -1.5).all() and (found <= 1 + 1e-6).all()
        assert np.isfinite(gradient(b, *pair, np.ones(len(pred)))).all()


@judges("fused.complete_iou")
def of_no_boxes_it_is_empty(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        empty = np.zeros((0, 4), dtype)
        found = b.fused.complete_iou(b.ops.tensor(empty), b.ops.tensor(empty))
        assert_equal(b.ops.to_numpy(found), np.zeros(0, dtype))
        assert_equal(gradient(b, empty, empty, np.ones(0)), empty)


@judges("fused.complete_iou")
def takes_any_eps(b: Backend) -> None:
    point = b.ops.tensor(np.zeros((1, 4)))
    apart = b.ops.tensor(np.array([[3.0, 4.0, 0.0, 0.0]]))
    # Distance 25 over a hull of 25 + eps; no area, no angle.
    found = b.fused.complete_iou(point, apart, 5.0)
    assert_equal(b.ops.to_numpy(found), np.array([-25 / 30]))


@judges("fused.complete_iou")
def refuses_what_is_not_two_rows_of_boxes(b: Backend) -> None:
    for left, right in (((2, 4), (3, 4)), ((1, 4), (3, 4)), ((2, 5), (2, 5)), ((4,), (4,))):
        assert_raises(
            ValueError,
            lambda x=left, y=right: b.fused.complete_iou(b.ops.zeros(x), b.ops.zeros(y)),
            str(right),
        )
