"""BatchNorm folded into the convolution before it, for a model that only detects."""

from __future__ import annotations

import numpy as np

from backend import nn
from backend.checks import as_float32
from models.blocks.conv import Conv


def fold_batch_norm(model: nn.Module) -> None:
    """Make one convolution with a bias of each `Conv`'s convolution and BatchNorm.

    In evaluation the values stay the same to rounding; training is no longer possible. What has no
    BatchNorm, or had it folded before, stays as it is.

    Args:
        model: on the CPU.
    """
    for part in model.modules():
        if isinstance(part, Conv) and "running_var" in nn.state_arrays(part.bn):
            _fold(part)


def _fold(part: Conv) -> None:
    weight, norm = nn.state_arrays(part.conv)["weight"], nn.state_arrays(part.bn)
    with np.errstate(all="ignore"):  # where weights are no numbers, nor is what BatchNorm returns
        variance = norm["running_var"].astype(np.float64) + as_float32(part.eps)
        factor = norm["weight"] / np.sqrt(variance)
        folded = {
            "weight": (weight * factor[:, None, None, None]).astype(np.float32),
            "bias": (norm["bias"] - norm["running_mean"] * factor).astype(np.float32),
        }
    convolution = nn.Conv2d(*part.arguments, bias=True)
    nn.load_state_arrays(convolution, folded)
    part.conv, part.bn = convolution, nn.Sequential()
