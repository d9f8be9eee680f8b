"""BatchNorm over the batches of all ranks; written with what both frameworks' tensors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def normalize(
    x: Any, norm: Any, ones: Callable[[int], Any], sum_over_ranks: Callable[[Any], Any]
) -> tuple[Any, Any, Any]:
    """Normalize with the mean and variance of all ranks' images.

    Mean and variance take two exchanges, not the one that E[x²] - E[x]² would need: it cancels.

    Args:
        x: (B, C, H, W) of this rank; B may be 0.
        norm: the BatchNorm module: weight, bias and eps.
        ones: makes (n,) ones of the dtype and device of x.
        sum_over_ranks: differentiable; its gradient is the sum of the ranks' gradients.

    Returns:
        The normalized x; mean (C,) and unbiased variance (C,), for the running statistics.
    """
    channels = x.shape[1]
    count = ones(channels) * float(x.shape[0] * x.shape[2] * x.shape[3])
    count = sum_over_ranks(count)
    mean = sum_over_ranks(x.sum((0, 2, 3))) / count
    centred = x - mean.reshape(1, channels, 1, 1)
    variance = sum_over_ranks((centred * centred).sum((0, 2, 3))) / count
    factor = (variance + norm.eps) ** -0.5 * norm.weight
    y = centred * factor.reshape(1, channels, 1, 1) + norm.bias.reshape(1, channels, 1, 1)
    return y, mean.detach(), (variance * count / (count - 1.0)).detach()
