"""What PyTorch's five CUDA kernels of SyncBatchNorm compute, for a CPU, from their definitions.

Maps are (B, C, H, W) in any layout, also in half precision; statistics (C,) are float32, or float64
of such maps. `invstd` is 1 / sqrt(biased variance + eps): a rank sends no variance but this.
"""

from __future__ import annotations

AXES = (0, 2, 3)


def of_channels(values):
    return values.reshape(1, -1, 1, 1)


def in_full(x):
    return x.float() if x.element_size() == 2 else x


def batch_norm_stats(x, eps):
    full = in_full(x)
    return full.mean(AXES), (full.var(AXES, correction=0) + eps).rsqrt()


def batch_norm_gather_stats_with_counts(
    x, means, invstds, running_mean, running_var, momentum, eps, counts
):
    """Join the statistics of N ranks, (N, C), (N, C) and (N,), and update the running ones."""
    counts = counts.reshape(-1, 1)
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    squares = ((invstds**-2 - eps + (means - mean) ** 2) * counts).sum(0)
    running_mean.lerp_(mean, momentum)
    running_var.lerp_(squares / (total - 1), momentum)
    return mean, (squares / total + eps).rsqrt()


def batch_norm_elemt(x, weight, bias, mean, invstd, eps):
    normalized = (in_full(x) - of_channels(mean)) * of_channels(invstd)
    return (normalized * of_channels(weight) + of_channels(bias)).to(x.dtype)


def batch_norm_backward_reduce(by_y, x, mean, invstd, weight, for_x, for_weight, for_bias):
    """Return the sums of by_y and by_y (x - mean), and the gradients of weight and bias."""
    total = in_full(by_y).sum(AXES)
    weighted = (in_full(by_y) * (in_full(x) - of_channels(mean))).sum(AXES)
    return total, weighted, weighted * invstd if for_weight else None, total if for_bias else None


def batch_norm_backward_elemt(by_y, x, mean, invstd, weight, total, weighted, counts):
    """Return the gradient of x. `total` and `weighted` are sums over all ranks."""
    pixels = counts.sum()
    centred = (in_full(x) - of_channels(mean)) * of_channels(invstd**2 * weighted / pixels)
    by_x = (in_full(by_y) - of_channels(total / pixels) - centred) * of_channels(invstd * weight)
    return by_x.to(x.dtype)


KERNELS = (
    batch_norm_stats,
    batch_norm_gather_stats_with_counts,
    batch_norm_elemt,
    batch_norm_backward_reduce,
    batch_norm_backward_elemt,
)
