"""Code shared by PyTorch and OneFlow for modules and ranks; imports neither.

Their modules have the same methods. Each backend's `nn` and `autograd` use this code;
`backend/contract` documents the functions without a docstring.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from duet.backend import autograd, checks, ops

# The frameworks' own, with more methods than the contract promises.
AnyTensor = Any
AnyModule = Any

GATHERED_DTYPES = ("float32", "float64", "int64", "uint8")
ONLY_PYTORCH = "only PyTorch has TorchScript; accepted: the backend torch"


def named_parameters(module: AnyModule) -> Iterator[tuple[str, AnyTensor]]:
    found: Iterator[tuple[str, AnyTensor]] = module.named_parameters()
    return found


def state_tensors(module: AnyModule) -> dict[str, AnyTensor]:
    return {name: value.detach() for name, value in module.state_dict().items()}


def state_arrays(module: AnyModule) -> dict[str, np.ndarray]:
    return {name: ops.to_numpy(value) for name, value in state_tensors(module).items()}


def load_state_arrays(module: AnyModule, arrays: Mapping[str, np.ndarray]) -> None:
    state = state_tensors(module)
    checks.module_state({name: value.shape for name, value in state.items()}, arrays)
    for name, value in state.items():
        value.copy_(ops.tensor(arrays[name].astype(ops.dtype_of(value))))


def register_buffer(module: AnyModule, name: str, array: np.ndarray) -> None:
    module.register_buffer(name, ops.tensor(array))


def set_trainable(parameters: Iterable[AnyTensor], trainable: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad = trainable
        if not trainable:
            parameter.grad = None


def set_to_zero(parameters: Iterable[AnyTensor]) -> None:
    with autograd.no_grad():
        for parameter in parameters:
            parameter.zero_()


def synchronize_batch_norm(module: AnyModule) -> None:
    for part in module.modules():
        if hasattr(part, "over_ranks"):  # a BatchNorm layer
            part.over_ranks = True


def to_torchscript(module: AnyModule, example: AnyTensor, text: str) -> bytes:
    raise ValueError(ONLY_PYTORCH)


def from_torchscript(content: bytes) -> Callable[[AnyTensor], AnyTensor]:
    raise ValueError(ONLY_PYTORCH)


def variable(array: np.ndarray, device: str = "cpu") -> AnyTensor:
    checks.known_dtype(array.dtype.name, checks.FLOAT_DTYPES)
    leaf: AnyTensor = ops.tensor(array, device)
    return leaf.requires_grad_()


def all_gather(
    array: np.ndarray,
    world_size: int,
    gather_equal: Callable[[np.ndarray], list[np.ndarray]],
) -> list[np.ndarray]:
    """Return every rank's array (N_r, ...), in rank order; see `contract.Dist.all_gather`.

    Args:
        gather_equal: gathers arrays with equal shape and dtype.
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
    x: AnyTensor, norm: AnyModule, sum_over_ranks: Callable[[AnyTensor], AnyTensor]
) -> tuple[AnyTensor, AnyTensor, AnyTensor]:
    """Normalize with the mean and variance over all ranks' images.

    Mean and variance take two exchanges. E[x²] - E[x]² would need one, but loses precision.

    Args:
        x: this rank's maps, (B, C, H, W); B may be 0.
        norm: the BatchNorm module, for weight, bias and eps.
        sum_over_ranks: differentiable; its gradient sums the ranks' gradients.

    Returns:
        The normalized x, and mean (C,) and unbiased variance (C,) for the running statistics.

    Raises:
        ValueError: all ranks together have at most one value per channel.
    """
    channels = x.shape[1]
    pixels = float(x.shape[0] * x.shape[2] * x.shape[3])
    own_count = ops.full((1,), pixels, ops.dtype_of(x), ops.device_of(x))
    sums = sum_over_ranks(ops.cat([x.sum((0, 2, 3)), own_count], 0))
    mean, count = sums[:channels] / sums[channels:], sums[channels:].detach()
    # Only a rank with at most one value has to check the total, which waits for the device.
    if pixels <= 1.0 and (found := int(ops.to_numpy(count)[0])) < 2:
        raise ValueError(f"BatchNorm needs several values per channel, not {found} on all ranks")
    centred = x - mean.reshape(1, channels, 1, 1)
    variance = sum_over_ranks((centred * centred).sum((0, 2, 3))) / count
    factor = (variance + norm.eps) ** -0.5 * norm.weight
    y = centred * factor.reshape(1, channels, 1, 1) + norm.bias.reshape(1, channels, 1, 1)
    return y, mean.detach(), (variance * count / (count - 1.0)).detach()


@contextmanager
def warnings_ignored() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
