"""Checks of `contract.Fused` and `contract.MultiTensor`, which have plain forms beside them."""

import itertools
from collections.abc import Callable
from functools import partial

import cv2
import numpy as np

from tests.conformance.checks_layers import NORMS, Norm
from tests.conformance.checks_optim import (
    KINDS,
    STEP_TOLERANCE,
    arrays_of,
    assert_tensors,
    backward,
    gradients_of_step,
    parameters,
    two_groups,
)
from tests.conformance.judging import (
    CHECKS,
    Backend,
    Check,
    Overlay,
    assert_equal,
    assert_raises,
    assert_refused,
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


NORM_SILU = "fused.batch_norm_silu"


@judges(NORM_SILU)
def float32_gradients_are_those_of_the_two_layers(b: Backend) -> None:
    x = uniform((2, 3, 3, 2), "float32")
    for case in NORMS:
        layer, weights = Norm(b, True, "float32", case), uniform(x.shape, "float32", seed=5)
        found = []
        for run in (layer, lambda x, norm=layer.norm: b.ops.silu(norm(x))):
            variable = b.variable(x)
            inputs = [variable, *(p for _, p in b.nn.named_parameters(layer.norm))]
            total = b.ops.sum(run(variable) * b.ops.tensor(weights))
            found.append([b.ops.to_numpy(g) for g in b.autograd.gradients(total, inputs)])
        for one, two in zip(*found, strict=True):
            assert_equal(one, two, tolerance=1e-5)  # a bias 40 times the weight costs two digits


@judges(NORM_SILU)
def channels_last_maps_give_the_same(b: Backend) -> None:
    if not b.device.supports("channels_last"):
        return
    x, weights = uniform((2, 3, 4, 3)), uniform((2, 3, 4, 3), seed=5)
    found = []
    for order in (lambda x: x, b.ops.channels_last):
        variable, layer = b.variable(x), Norm(b, True, "float64")
        total = b.ops.sum(layer(order(variable)) * b.ops.tensor(weights))
        found.append(b.ops.to_numpy(b.autograd.gradients(total, [variable])[0]))
    assert_equal(found[0], found[1], tolerance=1e-13)


@judges(NORM_SILU)
def fixed_parameters_get_no_gradient(b: Backend) -> None:
    for frozen in (("weight", "bias"), ("bias",)):
        layer, x = Norm(b, True, "float64"), b.variable(uniform((2, 3, 3, 2)))
        parameters = dict(b.nn.named_parameters(layer.norm))
        b.nn.set_trainable([parameters[name] for name in frozen], False)
        wanted = [x, *(p for name, p in parameters.items() if name not in frozen)]
        weights = b.ops.tensor(uniform((2, 3, 3, 2), seed=5))
        for gradient in b.autograd.gradients(b.ops.sum(layer(x) * weights), wanted):
            assert np.abs(b.ops.to_numpy(gradient)).max() > 1e-3


FINISHING = "fused.finish_images"
WIDTH = 64  # OpenCV rounds otherwise at the end of a row that is no multiple of 32


def unfinished() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images of random and of nearly grey colours, tables, and all kinds of changes."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (8, 3, 40, WIDTH))
    images[4:] = images[4:, :1] + random.integers(-4, 5, images[4:].shape)
    tables = random.integers(0, 256, (8, 3, 256))
    tables[:, 0] %= 180
    changes = np.array(list(itertools.product([False, True], repeat=3)))
    return images.clip(0, 255).astype(np.uint8), tables.astype(np.uint8), changes


def finished_by_opencv(images: np.ndarray, tables: np.ndarray, changes: np.ndarray) -> np.ndarray:
    found = []
    for image, table, (up_down, left_right, coloured) in zip(images, tables, changes, strict=True):
        image = image.transpose(1, 2, 0)
        if coloured:
            hsv = cv2.LUT(cv2.cvtColor(image, cv2.COLOR_RGB2HSV), table.T[None])
            image = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
        image = image[:: -1 if up_down else 1, :: -1 if left_right else 1]
        found.append(image.transpose(2, 0, 1))
    return np.stack(found)


@judges(FINISHING)
def agrees_with_opencv_to_one_grey_level(b: Backend) -> None:
    arrays = unfinished()
    inputs = [b.ops.tensor(array) for array in arrays]
    if not b.device.supports("finishing"):
        assert_refused("OpenCV", b.fused.finish_images, *inputs, "float32")
        return
    expected = finished_by_opencv(*arrays)
    for dtype, channels_last in (("float32", False), ("float64", True)):
        found = b.ops.to_numpy(b.fused.finish_images(*inputs, dtype, channels_last))
        levels = np.rint(found * 255)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, levels.astype(dtype) / np.array(255, dtype))
        difference = np.abs(levels - expected)
        assert difference.max() <= 1
        # OpenCV multiplies and adds with one rounding where the processor can.
        assert (difference > 0).mean() < 0.001
        assert (difference[~arrays[2][:, 2]] == 0).all()
    nothing = [b.ops.tensor(array[:0]) for array in arrays]
    assert b.fused.finish_images(*nothing, "float32").shape == (0, 3, 40, WIDTH)


@judges(FINISHING)
def refuses_numbers_of_other_images(b: Backend) -> None:
    images, tables, changes = unfinished()
    for wrong in (
        (images[:3], tables, changes),
        (images, tables[:, :2], changes),
        (images, tables, changes[:, :2]),
        (images[:, :1], tables, changes),
        (images / 255, tables, changes),
    ):
        inputs = [b.ops.tensor(array) for array in wrong]
        assert_refused("accepted" if wrong[0].dtype == np.uint8 else "", b.fused.finish_images,
                       *inputs, "float32")  # fmt: skip


@judges("fused.finish_problem")
def a_processor_has_opencv(b: Backend) -> None:
    problem = b.fused.finish_problem("cpu")
    assert isinstance(problem, str) and problem and "\n" not in problem


# Of `contract.MultiTensor`.

# The plain names that have a name in `multi_tensor` with the same promises.
PLAIN = {f"multi_tensor.{name}": f"optim.{name}" for name in KINDS}
PLAIN["multi_tensor.ema_update_"] = "optim.ema_update_"


def in_place_of_the_plain(run: Callable[[Backend], None], b: Backend) -> None:
    """Make the same check of the updates of `multi_tensor`."""
    other = Backend()
    other.optim = b.multi_tensor
    run(other)


CHECKS += [
    Check(name, check.label, partial(in_place_of_the_plain, check.run))
    for name, plain in PLAIN.items()
    for check in CHECKS
    if check.name == plain
]


def its_state_and_the_plain_one_are_interchangeable(name: str, b: Backend) -> None:
    """Check a run that changes between the plain and these updates at every step."""
    other = Overlay(b, "optim", b.multi_tensor)
    whole, changing = parameters(b), parameters(b)
    reference, state = two_groups(b, name, whole), {}
    for step in range(4):
        optimizer = two_groups((b, other)[step % 2], name, changing)
        optimizer.load_state_arrays(state)
        for tensors, updated in ((whole, reference), (changing, optimizer)):
            updated.zero_grad()
            backward(b, tensors, gradients_of_step(step))
            updated.step([0.1 / (step + 1), 0.05], 0.8 + 0.05 * step)
        state = optimizer.state_arrays()
        assert set(state) == set(reference.state_arrays())
    for key, array in reference.state_arrays().items():
        assert_equal(state[key], array, STEP_TOLERANCE["float64"])
    assert_tensors(b, changing, arrays_of(b, whole), STEP_TOLERANCE["float64"])


for name in KINDS:
    run = partial(its_state_and_the_plain_one_are_interchangeable, name)
    CHECKS.append(Check(f"multi_tensor.{name}", "opens the plain state, and its own there", run))


@judges("multi_tensor.ema_update_")
def averages_what_was_placed_again(b: Backend) -> None:
    """Check tensors that have other memory since an earlier EMA update."""
    module = b.nn.Conv2d(2, 3, 1)
    average = b.nn.frozen_copy(module)
    b.nn.load_state_arrays(average, {n: x * 0 for n, x in b.nn.state_arrays(module).items()})
    for dtype in ("float64", "float32"):
        for placed in (module, average):
            b.nn.place(placed, "cpu", "float64")
            b.nn.place(placed, "cpu", dtype)
        pair = (b.nn.float_tensors(average)(), b.nn.float_tensors(module)())
        b.multi_tensor.ema_update_(*pair, 0.5)
    weights = b.nn.state_arrays(module)["weight"]
    assert_equal(b.nn.state_arrays(average)["weight"], (0.75 * weights).astype("float32"))


@judges("multi_tensor.ema_update_")
def averages_what_was_packed_since(b: Backend) -> None:
    """Check modules that are packed after an EMA update, then get another tensor."""
    module = b.nn.Conv2d(2, 3, 1)
    average = b.nn.frozen_copy(module)
    b.nn.load_state_arrays(average, {n: x * 0 for n, x in b.nn.state_arrays(module).items()})
    values, averages = b.nn.float_tensors(module), b.nn.float_tensors(average)
    b.multi_tensor.ema_update_(averages(), values(), 0.5)
    for packed in (module, average):
        b.nn.pack(packed)
        b.multi_tensor.ema_update_(averages(), values(), 0.5)
    arrays = b.nn.state_arrays(module)
    for name, array in b.nn.state_arrays(average).items():
        assert_equal(array, (0.875 * arrays[name]).astype("float32"), 1e-6)
    weight, bias = averages()
    other = b.ops.tensor(b.ops.to_numpy(bias))
    b.multi_tensor.ema_update_([weight, other], values(), 0.5)
    for tensor, name, factor in (
        (bias, "bias", 0.875),
        (other, "bias", 0.9375),
        (weight, "weight", 0.9375),
    ):
        assert_equal(b.ops.to_numpy(tensor), (factor * arrays[name]).astype("float32"), 1e-6)


@judges("multi_tensor.describe")
def one_line_that_names_optimizer_and_device(b: Backend) -> None:
    for name in KINDS:
        for device in ("cpu", "cuda:0"):
            line = b.multi_tensor.describe(name, device)
            assert name in line and "\n" not in line
            assert ("CPU" if device == "cpu" else device) in line
