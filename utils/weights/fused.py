"""Convolutions with BatchNorm folded in -> the same convolutions before a BatchNorm of no effect.

Before: `yolov5.py` names the arrays. After: they fit the models of this project, which have the
BatchNorm. In evaluation they give the same outputs, to rounding. What it was before folding cannot
be told, so that in training, where BatchNorm takes the statistics of the batch, they do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from utils.weights.modules import BATCHNORM_EPS, CLASSIFIER_EPS

CONV, NORM = "conv.", "bn."
WEIGHT, BIAS = f"{CONV}weight", f"{CONV}bias"


def unfold(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], bool]:
    """Return the arrays without folded convolutions, in their order, and whether there were any.

    Args:
        arrays: by public name; NAME.conv.bias without NAME.bn.weight is what folding leaves.
    """
    folded = {
        prefix
        for name in arrays
        if name.endswith(BIAS)
        and (prefix := name.removesuffix(BIAS)) + WEIGHT in arrays
        and f"{prefix}{NORM}weight" not in arrays
    }
    unfolded: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        prefix = name.removesuffix(BIAS)
        eps = _eps(prefix, arrays)
        unfolded.update(_batchnorm(prefix, array, eps) if prefix in folded else [(name, array)])
    return unfolded, bool(folded)


def _eps(prefix: str, arrays: Mapping[str, np.ndarray]) -> float:
    """Return the eps of the BatchNorm of NAME.conv; a classifier's head has a linear beside it."""
    head = re.fullmatch(r"(model\.\d+\.)conv\.", prefix)
    return CLASSIFIER_EPS if head and f"{head[1]}linear.weight" in arrays else BATCHNORM_EPS


def _batchnorm(prefix: str, bias: np.ndarray, eps: float) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a BatchNorm that adds a bias, (C,) float32, and does no more."""
    ones = np.ones_like(bias)
    yield f"{prefix}{NORM}weight", ones * np.float32(np.sqrt(1 + eps))
    yield f"{prefix}{NORM}bias", bias
    yield f"{prefix}{NORM}running_mean", np.zeros_like(bias)
    yield f"{prefix}{NORM}running_var", ones
    yield f"{prefix}{NORM}num_batches_tracked", np.zeros((), np.int64)
