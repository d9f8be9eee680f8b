"""What holds of the loss of each head: chunks add up, padding is free, half precision is near."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from duet.backend import amp, autograd, ops
from duet.models.heads.base import WholeBatch
from duet.models.heads.classify.head import ClassificationLoss
from duet.utils.data.loading.batch import Targets
from tests.golden_models import assert_near, cost_of
from tests.unit.models.heads.anchor import test_loss as boxes
from tests.unit.models.heads.distribution import test_loss as edges
from tests.unit.models.heads.mask import test_loss as masks

Case = tuple[Any, list[np.ndarray], Targets]  # a loss, raw maps and targets


def anchor_case(count: int, classes: int = 3) -> Case:
    loss = boxes.make_loss(classes, objectness_positive=1.5, classification_positive=0.7)
    raw = [ops.to_numpy(x) for x in boxes.raw_maps(classes, images=3)]
    return loss, raw, boxes.drawn_targets(count, classes)


def anchor_free_case(count: int) -> Case:
    return edges.make_loss(edges.STRIDES, 3), *edges.drawn(count=count, seed=count)


def equal_images_case() -> Case:
    """Two equal images: the sum of scores, by which these losses are divided, is then halved."""
    maps, targets = edges.drawn(images=1, count=5)
    twice = Targets(
        np.repeat([0, 1], 5),
        np.tile(targets.class_index, 2),
        np.tile(targets.boxes_cxcywh_norm, (2, 1)),
    )
    return edges.make_loss(edges.STRIDES, 3), [np.concatenate([x, x]) for x in maps], twice


def mask_case(count: int, images: int = 2) -> Case:
    return masks.small_loss(), *masks.random_batch(images, count)


def classification_case() -> Case:
    random = np.random.default_rng(0)
    logits, classes = random.normal(0, 2, (7, 4)).astype(np.float32), random.integers(0, 4, 7)
    whole = np.tile(np.float32([0.5, 0.5, 1, 1]), (7, 1))
    return ClassificationLoss(0.1), [logits], Targets(np.arange(7), classes, whole)


# Sums of float64 in another order; of float32 those of a few hundred numbers.
@pytest.mark.parametrize(
    ("case", "ends", "rtol", "atol"),
    [
        (equal_images_case, (1, 2), 1e-9, 1e-12),
        (partial(mask_case, 7, 3), (2, 3), 1e-12, 1e-12),
        (classification_case, (3, 7), 1e-5, 1e-6),
    ],
    ids=["edges", "masks", "classes"],
)
def test_chunked_loss_adds_up_to_the_batch(case: Any, ends: Any, rtol: float, atol: float) -> None:
    loss, raw, targets = case()
    wanted, gradients = cost_of(loss, raw, targets)
    whole, terms, parts = WholeBatch(ends[-1], targets), [], []
    for end in ends:
        piece = [level[whole.done : end] for level in raw]
        found = cost_of(loss, piece, targets.between(whole.done, end), whole)
        terms.append(found[0])
        parts.append(found[1])
        whole.done = end
    for name, value in wanted.items():
        np.testing.assert_allclose(sum(one[name] for one in terms), value, rtol=rtol)
    for gradient, pieces in zip(gradients, zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(np.concatenate(pieces), gradient, rtol=0, atol=atol)


# 400 boxes claim many cells several times and need the second size. In float64 only OneFlow's
# float32 constants are left, the 1e-7 of denominators among them.
@pytest.mark.parametrize(
    ("make", "counts", "tolerance"),
    [
        (anchor_case, (1, 40, 400), 1e-9),
        (partial(anchor_case, classes=1), (1, 40, 400), 1e-9),
        (anchor_free_case, (1, 40, 300), 1e-9),
        (mask_case, (0, 1, 7), 1e-12),
    ],
    ids=["boxes", "one class", "edges", "masks"],
)
def test_padded_compiled_loss_equals_the_plain_one(
    make: Any, counts: Any, tolerance: float
) -> None:
    for case in map(make, counts):
        loss, raw, targets = case
        wanted, gradients = cost_of(loss, raw, targets)
        compiled = loss.compiled(lambda function, most_shapes: function)
        found, levels = cost_of(compiled, raw, targets)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=tolerance)
        for level, gradient in zip(levels, gradients, strict=True):
            atol = tolerance * min(1, np.abs(gradient).max())
            np.testing.assert_allclose(level, gradient, rtol=0, atol=atol)


def test_image_without_a_class_costs_nothing() -> None:
    loss, (logits,), targets = classification_case()
    alone, _ = cost_of(loss, [logits[:1]], targets.between(0, 1))
    both, _ = cost_of(loss, [logits[:2]], targets.between(0, 1))
    np.testing.assert_allclose(both["classification"], alone["classification"] / 2, rtol=1e-5)


# Gradients of up to 6 claims on a cell, each rounded to 8 bits, and their sums.
HALF_TOLERANCE = 12 * 2.0**-9


def rounded(x: Any, dtype: str) -> Any:
    """Return what an autocast makes of numbers, as the layers return them."""
    size = x.shape[x.ndim - 1]
    with amp.autocast("cpu", dtype):
        rows = ops.matmul(x.reshape(-1, size), ops.tensor(np.eye(size, dtype=np.float32)))
    return rows.reshape(*x.shape)


HALVES = {
    "boxes": lambda: (boxes.make_loss(3), map(ops.to_numpy, boxes.raw_maps(3)), boxes.CROWDED),
    "edges": partial(anchor_free_case, 12),
    "masks": lambda: (masks.make_loss(), masks.raw_arrays(), masks.encoded("overlap")),
    "classes": classification_case,
}


@pytest.mark.parametrize("case", HALVES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_maps_cost_as_in_float32(case: str, dtype: str) -> None:
    if dtype not in amp.supported("cpu"):
        pytest.skip(f"the backend has no {dtype}")
    loss, arrays, targets = HALVES[case]()
    variables = [autograd.variable(array.astype(np.float32)) for array in arrays]
    found = []
    for wide in (False, True):
        raw = [rounded(x, dtype) for x in variables]
        assert all(ops.dtype_of(x) == dtype for x in raw)
        inputs = [ops.cast(x, "float32") if wide else x for x in raw]
        found.append(cost_of(loss, inputs, targets, by=variables))
    (costs, gradients), (wide_costs, wide_gradients) = found
    for name, cost in costs.items():
        assert cost.dtype == np.float32 and cost > 0
        np.testing.assert_array_equal(cost, wide_costs[name])
    for gradient, wide in zip(gradients, wide_gradients, strict=True):
        assert_near(gradient, wide, HALF_TOLERANCE)
