"""BatchNorm over the batches of all ranks, for either framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backend import checks


def normalize(
    x: Any, norm: Any, ops: Any, sum_over_ranks: Callable[[Any], Any]
) -> tuple[Any, Any, Any]:
    """Normalize with the mean and variance of all ranks' images.

    Mean and variance take two exchanges. E[x²] - E[x]² would need one, but it loses digits.

    Args:
        x: (B, C, H, W) of this rank; B may be 0.
        norm: the BatchNorm module: weight, bias and eps.
        ops: `contract.Ops` of the framework.
        sum_over_ranks: differentiable; its gradient is the sum of the ranks' gradients.

    Returns:
        The normalized x; mean (C,) and unbiased variance (C,), for the running statistics.

    Raises:
        ValueError: all ranks together have one value per channel, or none.
    """
    channels = x.shape[1]
    pixels = float(x.shape[0] * x.shape[2] * x.shape[3])
    own_count = ops.full((1,), pixels, ops.dtype_of(x), ops.device_of(x))
    sums = sum_over_ranks(ops.cat([x.sum((0, 2, 3)), own_count], 0))
    mean, count = sums[:channels] / sums[channels:], sums[channels:].detach()
    if pixels <= 1.0:  # only then does the host wait for the number: each rank of one or none does
        checks.several_values_over_ranks(int(ops.to_numpy(count)[0]))
    centred = x - mean.reshape(1, channels, 1, 1)
    variance = sum_over_ranks((centred * centred).sum((0, 2, 3))) / count
    factor = (variance + norm.eps) ** -0.5 * norm.weight
    y = centred * factor.reshape(1, channels, 1, 1) + norm.bias.reshape(1, channels, 1, 1)
    return y, mean.detach(), (variance * count / (count - 1.0)).detach()
