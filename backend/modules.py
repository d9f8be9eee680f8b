"""Code shared by PyTorch and OneFlow for modules, ranks and optimizers; imports neither.

Their modules have the same methods. Each backend's `nn`, `autograd` and `optim` use this code;
`backend/contract` documents the functions without a docstring.
"""

from __future__ import annotations

import math
import operator
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from duet.backend import checks, ops
from duet.backend.contract import Stage

GATHERED_DTYPES = ("float32", "float64", "int64", "uint8")
ONLY_PYTORCH = "only PyTorch has TorchScript; accepted: the backend torch"
BETA2 = 0.999
EPSILON = 1e-8
MOMENTS = ("first_moment", "second_moment")  # per parameter: `conv.weight.first_moment`
UPDATES = "updates"  # name of the update counter in the state arrays


def named_parameters(module: Any) -> Iterator[tuple[str, Any]]:
    found: Iterator[tuple[str, Any]] = module.named_parameters()
    return found


def state_tensors(module: Any) -> dict[str, Any]:
    return {name: value.detach() for name, value in module.state_dict().items()}


def float_tensors(module: Any) -> Callable[[], Sequence[Any]]:
    found: list[tuple[dict[str, Any], str]] = [
        (kept, name)
        for part in module.modules()
        for kept in (part._parameters, part._buffers)
        for name, x in kept.items()
        if x is not None and x.is_floating_point() and name not in part._non_persistent_buffers_set
    ]
    weakref.finalize(module, OfMemory.forget).atexit = False
    return lambda: tuple(kept[name] for kept, name in found)


def state_arrays(module: Any) -> dict[str, np.ndarray]:
    return {name: ops.to_numpy(value) for name, value in state_tensors(module).items()}


def load_state_arrays(module: Any, arrays: Mapping[str, np.ndarray]) -> None:
    state = state_tensors(module)
    checks.module_state({name: value.shape for name, value in state.items()}, arrays)
    for name, value in state.items():
        value.copy_(ops.tensor(arrays[name].astype(ops.dtype_of(value))))


def register_buffer(module: Any, name: str, array: np.ndarray) -> None:
    module.register_buffer(name, ops.tensor(array))


def set_trainable(parameters: Iterable[Any], trainable: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad = trainable
        if not trainable:
            parameter.grad = None


def synchronize_batch_norm(module: Any) -> None:
    for part in module.modules():
        if hasattr(part, "over_ranks"):  # a BatchNorm layer
            part.over_ranks = True


def to_torchscript(module: Any, example: Any, text: str) -> bytes:
    raise ValueError(ONLY_PYTORCH)


def from_torchscript(content: bytes) -> Callable[[Any], Any]:
    raise ValueError(ONLY_PYTORCH)


def variable(array: np.ndarray, device: str = "cpu") -> Any:
    checks.known_dtype(array.dtype.name, checks.FLOAT_DTYPES)
    leaf: Any = ops.tensor(array, device)
    return leaf.requires_grad_()


def value_and_backward(
    model: Callable[[Any], Any],
    loss: Callable[[Any, Any], Any],
    images: Any,
    targets: Any,
    stage: Stage,
) -> Any:
    with stage("forward"):
        predictions = model(images)
    with stage("loss"):
        terms = loss(predictions, targets)
    with stage("backward"):
        terms.total.backward()
    return terms


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


def normalize(x: Any, norm: Any, sum_over_ranks: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
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


class OfMemory:
    """A function of the memory of EMA and values, called again only for other tensors or once
    tensors have moved: finding their addresses takes about as long as an update.
    """

    moved = 0  # how often the tensors of a module have been moved
    _all: weakref.WeakSet[OfMemory] = weakref.WeakSet()

    def __init__(self, function: Callable[[Sequence[Any], Sequence[Any]], Any]) -> None:
        self._function = function
        self._clear()
        self._all.add(self)

    def _clear(self) -> None:
        self._moved = -1
        self._seen: tuple[Sequence[Any], Sequence[Any]] = ((), ())
        self._result: Any = None

    @classmethod
    def forget(cls) -> None:
        """Keep no tensors: a module that had some is gone."""
        for one in cls._all:
            one._clear()

    def __call__(self, averages: Sequence[Any], values: Sequence[Any]) -> Any:
        known = all(map(_are_same, self._seen, (averages, values)))
        if self._moved != OfMemory.moved or not known:
            self._result = self._function(averages, values)
            # Tuples are immutable, and tuple() of a tuple makes no copy.
            self._seen, self._moved = (tuple(averages), tuple(values)), OfMemory.moved
        return self._result


def _are_same(tensors: Sequence[Any], others: Sequence[Any]) -> bool:
    if tensors is others:
        return True
    return len(tensors) == len(others) and all(map(operator.is_, tensors, others))


class AdamConstants(NamedTuple):
    """Constants of w -= rate * m / (sqrt(v) + epsilon), rounded to float32."""

    rate: float  # the learning rate with its bias correction
    epsilon: float
    beta1: float
    beta2: float


def adam_constants(learning_rate: float, momentum: float, update: int) -> AdamConstants:
    """Return the constants of update number `update`, from 1, including the bias corrections.

    Raises:
        ValueError: momentum outside [0, 1).

    Source: Kingma & Ba 2015, arXiv:1412.6980, end of section 2. Included here, the corrections are
    rounded once: OneFlow's kernel keeps them as float32, PyTorch's function as float64.
    """
    beta1, beta2 = checks.as_float32(momentum), checks.as_float32(BETA2)
    if not 0 <= beta1 < 1:
        raise ValueError(f"momentum {momentum} is Adam's beta1, which must be in [0, 1)")
    second = math.sqrt(1 - beta2**update)
    rate = checks.as_float32(learning_rate) * second / (1 - beta1**update)
    epsilon = checks.as_float32(EPSILON) * second
    return AdamConstants(checks.as_float32(rate), checks.as_float32(epsilon), beta1, beta2)


class NamedState(ABC):
    """Base of the optimizers: state arrays named `PARAMETER.KIND`, and Adam's count of updates."""

    kinds: Sequence[str]
    parameters: Mapping[str, Any]
    updates: int | None = None  # None: not counted

    def uncount_step(self) -> None:
        if self.updates is not None:
            self.updates -= 1

    def state_arrays(self) -> dict[str, np.ndarray]:
        if self.updates is None:
            return self.kept_arrays()
        if self.updates == 0:
            return {}  # after a skipped first step the moments are zero
        return {**self.kept_arrays(), UPDATES: np.array(self.updates)}

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        shapes: dict[str, tuple[int, ...]] = {
            f"{name}.{kind}": tuple(x.shape)
            for name, x in self.parameters.items()
            for kind in self.kinds
        }
        counts = self.updates is not None
        if counts and arrays and UPDATES not in arrays:
            raise ValueError(f"optimizer state {UPDATES!r} is missing: this is not Adam's state")
        checks.optimizer_state({**shapes, UPDATES: ()} if counts else shapes, arrays)
        self.keep_arrays(arrays)
        if counts:
            self.updates = int(arrays.get(UPDATES, 0))

    @abstractmethod
    def kept_arrays(self) -> dict[str, np.ndarray]:
        """Return copies of the state tensors by name."""

    @abstractmethod
    def keep_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace the state tensors; those without an array are dropped."""
