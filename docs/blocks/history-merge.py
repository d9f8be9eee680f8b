# --8<-- [start:page]
# Runs without a framework.
import numpy as np

random = np.random.default_rng(0)
C = 8  # channels in and out


def convolve(x, kernel):
    """x (C, H, W), kernel (C, C, 3, 3), with a border of zeros."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(
        padded, (3, 3), axis=(1, 2)
    )
    return np.einsum("chwij,ocij->ohw", windows, kernel)


def statistics():
    """Scale, shift, mean and deviation of a BatchNorm, (C,) each."""
    return *random.normal(size=(3, C)), random.uniform(0.5, 2, C)


def normalize(x, scale, shift, mean, deviation):
    factor = (scale / deviation)[:, None, None]
    return (x - mean[:, None, None]) * factor + shift[:, None, None]


def fold(kernel, scale, shift, mean, deviation):
    """A kernel and bias that do the convolution and its BatchNorm."""
    factor = scale / deviation
    return kernel * factor[:, None, None, None], shift - mean * factor


point = np.zeros((C, C, 3, 3))
point[:, :, 1, 1] = random.normal(size=(C, C))  # a 1 x 1 kernel in 3 x 3
identity = np.zeros((C, C, 3, 3))
identity[range(C), range(C), 1, 1] = 1
kernels = random.normal(size=(C, C, 3, 3)), point, identity
norms = [statistics() for _ in kernels]

x = random.normal(size=(C, 20, 20))
three = sum(
    normalize(convolve(x, kernel), *norm)
    for kernel, norm in zip(kernels, norms, strict=True)
)
folded = [
    fold(kernel, *norm) for kernel, norm in zip(kernels, norms, strict=True)
]
kernel, bias = (sum(parts) for parts in zip(*folded, strict=True))
one = convolve(x, kernel) + bias[:, None, None]
print("one convolution does the same:", np.allclose(one, three))
# --8<-- [end:page]
