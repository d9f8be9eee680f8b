"""A fast path runs only where it is proved, and one log line says what runs."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from backend import fused, ops
from backend.proof import is_proved
from models.heads.anchor import ciou
from models.heads.anchor.ciou import choose_box_iou, complete_iou

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
    assert line.startswith("--flag on cpu: the plain path is used (a kernel: its value differs by")


@pytest.mark.parametrize("error", [ImportError, AttributeError, RuntimeError, OSError])
def test_a_path_that_fails_is_not_proved_and_the_line_says_why(caplog, error):
    def run():
        raise error("no kernel for sm_99\nand where that was")

    assert not is_proved("--flag on cuda:0", "a kernel", run, lambda: PLAIN, 1e-3)
    reason = f"{error.__name__}: no kernel for sm_99"
    assert caplog.messages == [f"--flag on cuda:0: the plain path is used (a kernel: {reason})"]


def test_the_fused_box_loss_is_proved_here(caplog):
    assert choose_box_iou("cpu") is fused.complete_iou
    assert caplog.messages == ["--bbox_iou_optim on cpu: gradient in closed form"]


def wrong_for_wide_boxes(pred, target, eps=1e-7):
    iou = complete_iou(pred, target, eps)
    return ops.where(pred[:, 2] > 19.0, iou * 0.9, iou)


def without_gradient(pred, target, eps=1e-7):
    return complete_iou(pred.detach(), target, eps) + ops.sum(pred, 1) * 0.0


def not_a_number_for_equal_boxes(pred, target, eps=1e-7):
    gap = ops.sum(ops.maximum(pred - target, target - pred), 1)
    return complete_iou(pred, target, eps) + (gap / gap - 1.0)


def slightly_off(pred, target, eps=1e-7):
    return complete_iou(pred * 1.001, target, eps)


@pytest.mark.parametrize(
    "kernel", [wrong_for_wide_boxes, without_gradient, not_a_number_for_equal_boxes, slightly_off]
)
def test_a_wrong_kernel_gives_way_to_the_plain_formula(caplog, monkeypatch, kernel):
    monkeypatch.setattr(ciou.fused, "complete_iou", kernel)
    assert choose_box_iou("cpu") is complete_iou
    (line,) = caplog.messages
    assert line.startswith("--bbox_iou_optim on cpu: the plain path is used (")
    assert "differs by" in line
