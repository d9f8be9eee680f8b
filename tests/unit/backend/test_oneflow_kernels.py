"""How OneFlow's CUDA kernels are put together, with stand-ins for them, which no CPU has."""

from __future__ import annotations

import importlib
import inspect
import math

import pytest

import backend
from backend import ops
from models.heads.anchor.ciou import CIOU_TOLERANCE, complete_iou, probe_box_iou
from models.proof import is_proved

pytestmark = pytest.mark.skipif(backend.use() != "oneflow", reason="they are OneFlow's")


class Kernels:
    """The signatures that OneFlow 0.9 has, computed by operations as its kernels are known to."""

    @staticmethod
    def fused_get_boundding_boxes_coord(x1, y1, w1, h1, x2, y2, w2, h2):
        return (
            *(x1 - w1 / 2, x1 + w1 / 2, y1 - h1 / 2, y1 + h1 / 2),
            *(x2 - w2 / 2, x2 + w2 / 2, y2 - h2 / 2, y2 + h2 / 2),
        )

    @staticmethod
    def fused_get_intersection_area(b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2):
        width = ops.minimum(b1_x2, b2_x2) - ops.maximum(b1_x1, b2_x1)
        height = ops.minimum(b1_y2, b2_y2) - ops.maximum(b1_y1, b2_y1)
        return ops.clamp(width, low=0.0) * ops.clamp(height, low=0.0)

    @staticmethod
    def fused_get_iou(w1, h1, w2, h2, inter, eps):
        return inter / (w1 * h1 + w2 * h2 - inter + eps)

    @staticmethod
    def fused_get_convex_diagonal_squared(
        b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2, eps
    ):
        width = ops.maximum(b1_x2, b2_x2) - ops.minimum(b1_x1, b2_x1)
        height = ops.maximum(b1_y2, b2_y2) - ops.minimum(b1_y1, b2_y1)
        return width**2 + height**2 + eps

    @staticmethod
    def fused_get_center_dist(b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2):
        return ((b2_x1 + b2_x2 - b1_x1 - b1_x2) ** 2 + (b2_y1 + b2_y2 - b1_y1 - b1_y2) ** 2) / 4

    @staticmethod
    def fused_get_ciou_diagonal_angle(w1, h1, w2, h2, eps):
        return (ops.atan(w2 / (h2 + eps)) - ops.atan(w1 / (h1 + eps))) ** 2 * (4 / math.pi**2)

    @staticmethod
    def fused_get_ciou_result(v, iou, rho2, c2, eps):
        alpha = (v / (v - iou + (1 + eps))).detach()
        return iou - (rho2 / c2 + v * alpha), alpha


NAMES = [name for name in vars(Kernels) if name.startswith("fused_get_")]


def test_the_kernels_are_combined_to_the_plain_formula(monkeypatch):
    module = importlib.import_module("backend.oneflow.fused")
    for name in NAMES:
        monkeypatch.setattr(module.oneflow._C, name, getattr(Kernels, name))
    assert is_proved(
        "", "",
        lambda: probe_box_iou(lambda *boxes: module._by_kernels(*boxes, 1e-7), "cpu"),
        lambda: probe_box_iou(complete_iou, "cpu"), CIOU_TOLERANCE,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_oneflow_takes_the_arguments_of_the_stand_in(name):
    module = importlib.import_module("backend.oneflow.fused")
    parameters = inspect.signature(getattr(Kernels, name)).parameters
    arguments = [1e-7 if parameter == "eps" else ops.zeros((2,)) for parameter in parameters]
    # A wrong number or kind of arguments is refused before the kernel is looked for.
    with pytest.raises(RuntimeError, match="kernel_not_found"):
        getattr(module.oneflow._C, name)(*arguments)
