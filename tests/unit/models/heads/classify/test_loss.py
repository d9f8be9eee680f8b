"""The loss of classification against NumPy: smoothing, pieces, ranks, half precision."""

import numpy as np
import pytest

from duet.backend import autograd, ops
from duet.models.heads.base import WholeBatch
from duet.models.heads.classify.head import ClassificationLoss
from duet.utils.data.loading.batch import Targets

# Sums of a few hundred float32 numbers; OneFlow's logarithm of 1 is 1e-6.
TOLERANCE = 1e-5


def targets_of(classes):
    number = len(classes)
    boxes = np.tile(np.float32([0.5, 0.5, 1, 1]), (number, 1))
    return Targets(np.arange(number), np.array(classes, np.int64), boxes)


def cross_entropy(logits, classes, smoothing):
    """The mean over images, float64."""
    x = logits.astype(np.float64)
    logs = x - x.max(1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    wanted = np.eye(x.shape[1])[classes] * (1 - smoothing) + smoothing / x.shape[1]
    return -(wanted * logs).sum(1).mean()


def drawn(images=6, classes=4):
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (images, classes)).astype(np.float32)
    return logits, random.integers(0, classes, images)


def value(term):
    return float(ops.to_numpy(term))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_value_and_gradient_are_those_of_numpy(smoothing):
    logits, classes = drawn()
    variable = autograd.variable(logits)
    terms = ClassificationLoss(smoothing)((variable,), targets_of(classes))
    wanted = cross_entropy(logits, classes, smoothing)
    assert value(terms.by_name["classification"]) == pytest.approx(wanted, rel=TOLERANCE)
    assert value(terms.total) == pytest.approx(wanted, rel=TOLERANCE)
    scores = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    target = np.eye(4)[classes] * (1 - smoothing) + smoothing / 4
    (gradient,) = autograd.gradients(terms.total, [variable])
    np.testing.assert_allclose(ops.to_numpy(gradient), (scores - target) / 6, atol=1e-6)


def test_pieces_add_up_to_the_batch():
    logits, classes = drawn(7)
    loss = ClassificationLoss(0.1)
    whole = loss((ops.tensor(logits),), targets_of(classes))
    batch, found = WholeBatch(7, targets_of(classes)), []
    for piece in (slice(0, 3), slice(3, 7)):
        found.append(loss((ops.tensor(logits[piece]),), targets_of(classes[piece]), batch))
    for name in ("by_name", "total"):
        get = (lambda t: t.total) if name == "total" else (lambda t: t.by_name["classification"])
        total = sum(value(get(terms)) for terms in found)
        assert total == pytest.approx(value(get(whole)), rel=TOLERANCE)


def test_an_image_without_a_class_costs_nothing():
    logits, classes = drawn(2)
    targets = targets_of(classes).take(slice(0, 1))
    found = ClassificationLoss()((ops.tensor(logits),), targets).by_name["classification"]
    wanted = cross_entropy(logits[:1], classes[:1], 0) / 2
    assert value(found) == pytest.approx(wanted, rel=TOLERANCE)
