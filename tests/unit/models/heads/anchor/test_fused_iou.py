"""The fused complete IoU equals the plain formula, value and gradient, alone and in the loss.

It runs only where that is proved, and one log line says what runs.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest

from duet.backend import autograd, fused, ops
from duet.backend.proof import is_proved
from duet.models.heads.anchor import boxes as anchor_boxes
from duet.models.heads.anchor.boxes import choose_box_iou, complete_iou
from duet.utils.data.loading.batch import Targets
from tests.losses import arrays_of
from tests.unit.models.heads.anchor.test_loss import NO_TARGETS, make_loss, raw_maps

SEVERAL_LEVELS = Targets(
    np.array([0, 1, 1]),
    np.array([2, 0, 1]),
    np.array([[0.3, 0.6, 0.2, 0.3], [0.7, 0.2, 0.9, 0.8], [0.5, 0.5, 0.3, 0.2]], np.float32),
)
LARGE_ONLY = Targets(np.array([0]), np.array([2]), np.array([[0.5, 0.5, 0.9, 0.9]], np.float32))


@pytest.mark.parametrize("targets", [SEVERAL_LEVELS, LARGE_ONLY, NO_TARGETS])
def test_the_loss_and_its_gradients_equal_the_plain_ones(targets):
    results = []
    for box_iou in (complete_iou, fused.complete_iou):
        maps = raw_maps(3)
        terms = make_loss(3, box_iou)(maps, targets)
        gradients = autograd.gradients(terms.total, maps)
        results.append([*arrays_of(terms).values(), *map(ops.to_numpy, gradients)])
    for found, wanted in zip(*results, strict=True):
        # float64 throughout.
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


PLAIN = {"value": np.array([1.0, -200.0]), "gradient": np.zeros((0, 4))}


@pytest.fixture(autouse=True)
def _all_lines(caplog):
    caplog.set_level(logging.INFO)


def proved(**changes):
    return is_proved("--flag on cpu", "a kernel", lambda: {**PLAIN, **changes}, lambda: PLAIN, 1e-3)


def test_equal_results_prove_a_path(caplog):
    assert proved(value=np.array([1.0, -200.1]))
    assert caplog.messages == ["--flag on cpu: a kernel"]


@pytest.mark.parametrize("wrong", [np.array([1.3, -200.0]), np.array([1.0, np.nan])])
def test_a_path_that_differs_is_not_proved(caplog, wrong):
    assert not proved(value=wrong)
    (line,) = caplog.messages
    assert line.startswith("--flag on cpu: using the plain path (a kernel: value differs by")


@pytest.mark.parametrize("error", [ImportError, AttributeError, RuntimeError, OSError])
def test_a_path_that_fails_is_not_proved_and_the_line_says_why(caplog, error):
    def run():
        raise error("no kernel for sm_99\nand where that was")

    assert not is_proved("--flag on cuda:0", "a kernel", run, lambda: PLAIN, 1e-3)
    reason = f"{error.__name__}: no kernel for sm_99"
    assert caplog.messages == [f"--flag on cuda:0: using the plain path (a kernel: {reason})"]


def test_the_fused_box_loss_is_proved_here(caplog):
    assert choose_box_iou("cpu") is fused.complete_iou
    assert caplog.messages == ["--bbox_iou_optim on cpu: closed-form gradient"]


def wrong_for_wide_boxes(pred, target, eps=1e-7):
    iou = complete_iou(pred, target, eps)
    return ops.where(pred[:, 2] > 19.0, iou * 0.9, iou)


def not_a_number_for_equal_boxes(pred, target, eps=1e-7):
    gap = ops.sum(ops.maximum(pred - target, target - pred), 1)
    return complete_iou(pred, target, eps) + (gap / gap - 1.0)


@pytest.mark.parametrize("kernel", [wrong_for_wide_boxes, not_a_number_for_equal_boxes])
def test_a_wrong_kernel_gives_way_to_the_plain_formula(caplog, monkeypatch, kernel):
    monkeypatch.setattr(anchor_boxes.fused, "complete_iou", kernel)
    assert choose_box_iou("cpu") is complete_iou
    (line,) = caplog.messages
    assert line.startswith("--bbox_iou_optim on cpu: using the plain path (")
    assert "differs by" in line
