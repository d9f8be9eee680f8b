"""A process of its own: the Triton kernels of PyTorch on a CPU, by Triton's interpreter.

Runs every check of `fused.complete_iou` on them and prints how many there were.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

import numpy as np

os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported

import backend

backend.use("torch")  # before the models, whose classes derive from the framework's

from backend import autograd, checks, fused, ops
from backend.contract import Tensor
from backend.torch.kernels import complete_iou as kernels
from models.heads.anchor.ciou import CIOU_TOLERANCE, BoxIou, complete_iou, probe_box_iou
from models.proof import is_proved
from tests.conformance.all_checks import CHECKS
from tests.conformance.judging import Backend, assert_equal


def interpreted(pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
    """Compute `complete_iou` as `backend/torch/fused.py` does on CUDA."""
    checks.box_pairs(pred.shape, target.shape)
    return kernels.complete_iou(pred, target.detach(), eps)


def check_bfloat16(box_iou: BoxIou) -> None:
    """Check bfloat16 predictions of autocast: computed in float32, gradient in bfloat16."""
    random = np.random.Generator(np.random.Philox(0))
    boxes, targets = random.uniform(0.5, 4, (2, 300, 4)).astype(np.float32)
    half = autograd.variable(boxes).bfloat16().detach().requires_grad_()
    wide = half.detach().float().requires_grad_()
    iou, wanted = box_iou(half, ops.tensor(targets)), complete_iou(wide, ops.tensor(targets))
    assert_equal(ops.to_numpy(iou), ops.to_numpy(wanted), 1e-5)
    (gradient,), (exact,) = (
        autograd.gradients(ops.sum(x), [y]) for x, y in ((iou, half), (wanted, wide))
    )
    assert gradient.dtype == half.dtype
    # bfloat16 has 8 bits; the interpreter truncates where a GPU rounds.
    np.testing.assert_allclose(
        ops.to_numpy(gradient.float()), ops.to_numpy(exact), rtol=1 / 128, atol=1e-5
    )


def main() -> None:
    judged = Backend().replaced("fused", "complete_iou", interpreted)
    chosen = [check for check in CHECKS if check.name == "fused.complete_iou"]
    for check in chosen:
        check.run(judged)
    assert is_proved(
        "", "", lambda: probe_box_iou(interpreted, "cpu"),
        lambda: probe_box_iou(complete_iou, "cpu"), CIOU_TOLERANCE,
    )  # fmt: skip
    check_bfloat16(interpreted)
    check_bfloat16(fused.complete_iou)
    print(f"{len(chosen)} checks passed")


if __name__ == "__main__":
    main()
