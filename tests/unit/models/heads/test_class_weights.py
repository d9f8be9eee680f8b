"""Weights of classes: the numbers from objects, and what they do to each head's losses."""

import dataclasses
import json
import logging
from pathlib import Path

import numpy as np
import pytest
import yaml

from duet.backend import ops
from duet.models.detector import Detector
from duet.models.graph import parse_model
from duet.models.training.from_labels import effective_weights, with_class_weights
from duet.utils.cli.hyperparameters import Hyperparameters, read_hyperparameters
from duet.utils.cli.run_config import as_document
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.loading.batch import TargetMasks, Targets
from duet.utils.data.sources.samples import Sample, table_of
from duet.utils.errors import UserError
from duet.utils.state.job import TrainData
from tests.golden_models import cost_of, loss_settings
from tests.small import CLASSIFIER, TINY, TINY_ANCHOR_FREE, TINY_SEGMENTER

MODELS = {"boxes": TINY, "free": TINY_ANCHOR_FREE, "masks": TINY_SEGMENTER, "classes": CLASSIFIER}
WEIGHTS = (3.0, 0.25, 1.0, 0.5, 0.25)
# Sums of a few thousand float32 terms in another order.
TOLERANCE = 1e-5


def targets_of(*classes):
    """Return an object per image, of the same place and size."""
    boxes = np.tile(np.float32([[0.5, 0.5, 0.4, 0.3]]), (len(classes), 1))
    number = np.arange(len(classes))
    maps = TargetMasks(np.ones((len(classes), 16, 16), np.uint8), number, np.ones_like(number))
    return Targets(number, np.array(classes, np.int64), boxes, maps)


def losses_of(kind, targets, weights=(), compiled=False):
    """Return the losses, and the gradient of the total by the first raw map."""
    document = yaml.safe_load(MODELS[kind])
    model = Detector(parse_model({**document, "anchors": document.get("anchors", [])}))
    model.initialize(seed=1)
    gains = dataclasses.replace(loss_settings().gains, class_weights=weights)
    loss = model.head.make_loss(loss_settings(64)._replace(gains=gains))
    if compiled:
        loss = loss.compiled(lambda function, shapes: function)
    random = np.random.default_rng(0)
    shape = (len(targets.class_index), 3, 64, 64)
    raw = model(ops.tensor(random.random(shape, np.float32)))
    losses, gradients = cost_of(loss, map(ops.to_numpy, raw), targets)
    return losses, gradients[0]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_unit_class_weights_change_nothing(kind, compiled):
    targets = targets_of(0, 1, 4)
    plain, plain_gradient = losses_of(kind, targets)
    ones, gradient = losses_of(kind, targets, (1.0,) * 5, compiled)
    for name, value in plain.items():
        np.testing.assert_allclose(ones[name], value, rtol=TOLERANCE)
    np.testing.assert_allclose(gradient, plain_gradient, atol=TOLERANCE * abs(gradient).max())


@pytest.mark.parametrize("kind", ["boxes", "masks", "classes"])
def test_class_weight_scales_only_the_class_loss(kind):
    for label in (0, 1):
        plain, _ = losses_of(kind, targets_of(label, label))
        weighted, _ = losses_of(kind, targets_of(label, label), WEIGHTS)
        wanted = plain["classification"] * WEIGHTS[label]
        np.testing.assert_allclose(weighted.pop("classification"), wanted, rtol=TOLERANCE)
        del weighted["total"]
        assert all(weighted[name] == plain[name] for name in weighted)


@pytest.mark.parametrize("kind", MODELS)
def test_class_loss_is_linear_in_the_class_weights(kind):
    targets = targets_of(0, 1, 1)
    plain = losses_of(kind, targets)[0]["classification"]
    first = losses_of(kind, targets, (2.0, 1.0, 1.0, 1.0, 1.0))[0]["classification"] - plain
    second = losses_of(kind, targets, (1.0, 2.0, 1.0, 1.0, 1.0))[0]["classification"] - plain
    assert first > 0 and second > 0
    wanted = plain + 2 * first - 0.75 * second
    found = losses_of(kind, targets, WEIGHTS)[0]["classification"]
    np.testing.assert_allclose(found, wanted, rtol=10 * TOLERANCE)


def test_effective_weights_follow_the_paper():
    """Cui et al. 2019, equation 2, E = (1 - beta^n) / (1 - beta), with sums of powers."""
    numbers = np.array([1000, 20, 0])
    effective = [sum(0.999**i for i in range(n)) for n in numbers[:2]]
    wanted = np.array([1 / x for x in effective])
    wanted = wanted / wanted.mean()
    np.testing.assert_allclose(effective_weights(numbers), [*wanted, 1.0], rtol=1e-12)
    assert effective_weights(np.array([7, 7])) == (1.0, 1.0)


def weights_from(weights, *classes):
    index = np.array(classes, np.int64)
    boxes = np.full((len(index), 4), 0.5, np.float32)
    samples = table_of([Sample(Path("a.jpg"), 64, 64, index, boxes)])
    hyp = read_hyperparameters(parse_train_flags([]).hyp, [f"cls_weights={weights}"])
    data = TrainData(("car", "bus", "tram"), samples, samples)
    return with_class_weights(hyp, data).cls_weights


def test_auto_weights_log_the_rarest_class(caplog):
    with caplog.at_level(logging.INFO):
        found = weights_from("auto", 0, 0, 0, 1)
    assert found == effective_weights(np.array([3, 1, 0]))
    assert "cls_weights: bus, the rarest class (1 object), 1.5; all from 0.5 to 1.5" in caplog.text


def test_weight_list_needs_one_weight_per_class():
    assert weights_from("1,2,4", 0, 1) == (1.0, 2.0, 4.0)
    assert weights_from("", 0) == ()
    with pytest.raises(UserError, match="2 weights for 3 classes; accepted: one per class, or"):
        weights_from("1,2", 0)


def test_class_weights_survive_the_state():
    hyp = read_hyperparameters(parse_train_flags([]).hyp)
    for value, wanted in (("auto", ()), ([1, 2.5], (1.0, 2.5)), ([], ())):
        changed = dataclasses.replace(hyp, cls_weights=value)
        assert changed.loss_gains().class_weights == wanted
        stored = json.loads(json.dumps(as_document(changed)))  # as in a state
        assert Hyperparameters(**stored) == changed
