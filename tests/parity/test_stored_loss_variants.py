"""Label smoothing, focal loss, weights of positives and autobalance against the public YOLOv5's.

Tolerances: those of the plain loss in `test_stored_outputs.py`, for the same reasons.
"""

import dataclasses

import numpy as np
import pytest

from backend import autograd, ops
from models.detector import Detector
from models.graph import read_model_yaml
from tests.losses import arrays_of
from tests.parity.test_stored_outputs import largest_error, stored, stored_targets
from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters

VARIANTS = {
    "base": {},
    "smooth": {"label_smoothing": 0.1},
    "focal": {"fl_gamma": 1.5},
    "posw": {"cls_pw": 1.7, "obj_pw": 0.6},
    "anchor_t": {"anchor_t": 2.91},
}


def eager(cost, most_shapes):
    return cost


FORMS = {
    "plain": lambda loss: loss,
    "padded": lambda loss: loss.compiled(eager),  # as it is compiled
}


@pytest.fixture(scope="module")
def head():
    return Detector(read_model_yaml("models/yolov5n.yaml")).head


def make_loss(head, fused_on=None, label_smoothing=0.0, autobalance=False, **hyp):
    hyp = dataclasses.replace(read_hyperparameters(DEFAULT_HYPERPARAMETERS), **hyp)
    return head.make_loss(hyp, 640, fused_on, label_smoothing, autobalance)


def maps():
    return [stored("train_loss")[f"fp32_random_p{level}"] for level in range(3)]


@pytest.mark.parametrize("fused_on", [None, "cpu"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_values_and_gradients_are_the_stored_ones(head, variant, form, fused_on):
    expected = stored("loss_variants")
    loss = FORMS[form](make_loss(head, fused_on, **VARIANTS[variant]))
    raw = [autograd.variable(level) for level in maps()]
    terms = loss(raw, stored_targets("random"))
    *items, total = arrays_of(terms).values()
    np.testing.assert_allclose(items, expected[f"{variant}_items"], rtol=2e-6)
    np.testing.assert_allclose(total, expected[f"{variant}_loss"][0], rtol=2e-6)
    for level, gradient in enumerate(autograd.gradients(terms.total, raw)):
        wanted = expected[f"{variant}_gp{level}"]
        assert largest_error(ops.to_numpy(gradient), wanted) < 2e-6


@pytest.mark.parametrize("form", FORMS)
def test_autobalance_has_the_stored_losses_and_weights_call_by_call(head, form):
    expected = stored("loss_variants")
    loss = make_loss(head, autobalance=True)
    step_loss = FORMS[form](loss)
    for call in range(3):
        terms = step_loss([ops.tensor(level) for level in maps()], stored_targets("random"))
        loss.end_batch()
        items = list(arrays_of(terms).values())[:3]
        np.testing.assert_allclose(items, expected[f"autobalance{call}_items"], rtol=2e-6)
        # A step of 1e-3 at most, of losses that differ by 1e-6.
        balance = ops.to_numpy(loss.state()["balance"])
        np.testing.assert_allclose(balance, expected[f"autobalance{call}_balance"], rtol=1e-8)
