"""What several ranks do together, for either framework; imports none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

GATHERED_DTYPES = ("float32", "float64", "int64", "uint8")


def all_gather(
    array: np.ndarray,
    world_size: int,
    gather_equal: Callable[[np.ndarray], list[np.ndarray]],
) -> list[np.ndarray]:
    """Return the arrays (N_r, ...) of all ranks, in their order; `contract.Dist.all_gather`.

    Args:
        gather_equal: gathers arrays of one shape and dtype.
    """
    if array.ndim == 0 or array.dtype.name not in GATHERED_DTYPES:
        raise ValueError(
            f"all_gather takes (N, ...) arrays of {', '.join(GATHERED_DTYPES)}, "
            f"not {array.shape} {array.dtype}"
        )
    if world_size == 1:
        return [array.copy()]
    lengths = [int(found[0]) for found in gather_equal(np.array([len(array)], np.int64))]
    if max(lengths) == 0:
        return [array.copy() for _ in lengths]
    padded = np.zeros((max(lengths), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return [rows[:length] for rows, length in zip(gather_equal(padded), lengths, strict=True)]


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
    # Only a rank of one value or none has the host wait for the number, but each of those does.
    if pixels <= 1.0 and (found := int(ops.to_numpy(count)[0])) < 2:
        raise ValueError(f"BatchNorm needs several values per channel, not {found} of all ranks")
    centred = x - mean.reshape(1, channels, 1, 1)
    variance = sum_over_ranks((centred * centred).sum((0, 2, 3))) / count
    factor = (variance + norm.eps) ** -0.5 * norm.weight
    y = centred * factor.reshape(1, channels, 1, 1) + norm.bias.reshape(1, channels, 1, 1)
    return y, mean.detach(), (variance * count / (count - 1.0)).detach()
