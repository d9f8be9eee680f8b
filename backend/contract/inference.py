"""The contract of running a model: all that a backend for inference only must have.

`backend/onnx` has no more than this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np


class Tensor(Protocol):
    """The methods and operators of a framework tensor that Duet's code may use.

    If no gradient is recorded, `requires_grad` is False, `grad` is None and `detach` returns the
    same values.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def requires_grad(self) -> bool: ...
    @property
    def grad(self) -> Tensor | None: ...

    def __add__(self, other: Tensor | float) -> Tensor: ...
    def __radd__(self, other: float) -> Tensor: ...
    def __sub__(self, other: Tensor | float) -> Tensor: ...
    def __rsub__(self, other: float) -> Tensor: ...
    def __mul__(self, other: Tensor | float) -> Tensor: ...
    def __rmul__(self, other: float) -> Tensor: ...
    def __truediv__(self, other: Tensor | float) -> Tensor: ...
    def __rtruediv__(self, other: float) -> Tensor: ...
    def __pow__(self, exponent: float) -> Tensor:
        """Raise to a number: whole, or for elements from 0 up; a negative number's root is NaN.

        Of -0.0 and -inf a fractional power is not promised: some frameworks take the square root
        for 0.5, where IEEE 754 has other values for a root than for a power.
        """

    def __neg__(self) -> Tensor: ...
    def __lt__(self, other: Tensor | float) -> Tensor: ...
    def __le__(self, other: Tensor | float) -> Tensor: ...
    def __gt__(self, other: Tensor | float) -> Tensor: ...
    def __ge__(self, other: Tensor | float) -> Tensor: ...
    def __getitem__(self, index: Any) -> Tensor:
        """Return a view or a copy, by integers, slices and `...`. By tensor: `ops.take_rows`."""

    def reshape(self, *shape: int) -> Tensor:
        """Reshape to at least one size; -1 for the size that follows from the others."""

    def permute(self, *dims: int) -> Tensor: ...
    def detach(self) -> Tensor: ...


class Ops(Protocol):
    """Functions of tensors that a model in evaluation calls."""

    # NumPy boundary, dtype and device
    def tensor(self, array: np.ndarray, device: str = "cpu") -> Tensor:
        """Copy a NumPy array of a promised dtype into a tensor of the same shape and dtype.

        Here and elsewhere a device is one that `Device.resolve` returned, on each rank its own.

        Raises:
            ValueError: a dtype outside the promised ones, a device that is not there.
        """

    def to_numpy(self, x: Tensor) -> np.ndarray:
        """Copy to host memory, detached; the copy is complete when the call returns."""

    def to_numpy_later(self, x: Tensor) -> Callable[[], np.ndarray]:
        """Begin a copy to the host; the function returned gives what `to_numpy` gives now.

        It waits for what was queued before this call, and not for what is queued after it where
        the framework can tell them apart. What is done to x later does not change the copy.
        """

    def dtype_of(self, x: Tensor) -> str:
        """Return the name of the dtype, "float32" for instance."""

    def device_of(self, x: Tensor) -> str:
        """Return the name of the device, "cpu" or "cuda:0"."""

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Convert to another dtype, truncated towards zero from float to int (gradient)."""

    def normalize_images(self, images: Tensor, dtype: str, channels_last: bool = False) -> Tensor:
        """Convert (B, C, H, W) uint8 to a float dtype, divided by 255; same shape and order.

        channels_last: the channels of a pixel lie side by side in memory, in the result and in
        the output of layers. Values differ from the other layout only by rounding.

        Raises:
            ValueError: another dtype or number of dimensions; channels_last on a backend that
                does not support it.
        """

    # Element by element, float in, same dtype out (gradient)
    def sigmoid(self, x: Tensor) -> Tensor: ...
    def silu(self, x: Tensor) -> Tensor:
        """Return x · sigmoid(x)."""

    def leaky_relu(self, x: Tensor, slope: float) -> Tensor:
        """Return x where x > 0, else slope · x; the gradient at 0 is the slope.

        The slope is rounded to float32, also for float64 tensors.
        """

    # Products and means (gradient)
    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply the matrices of (..., N, K) and (..., K, M); the first dimensions are equal.

        Raises:
            ValueError: other shapes, or two dtypes.
        """

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Map (..., in) to (..., out) by a weight (out, in) and a bias (out,).

        Raises:
            ValueError: other shapes, or two dtypes.
        """

    def softmax(self, x: Tensor) -> Tensor:
        """Return e^x divided by its sum along the last dimension, without overflow."""

    # Reductions (gradient). dim None reduces to 0-d.
    def mean(self, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Return the mean; NaN if there is nothing to average."""

    # Shape and index (gradient)
    def cat(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Join along an existing dimension; ValueError for no tensors or unequal dtypes."""

    def take_rows(self, x: Tensor, index: Tensor) -> Tensor:
        """Return x[index] along dimension 0, index (K,) int64; ValueError outside 0 to len(x) - 1.

        The range is checked only on a CPU, where it costs little.
        """

    def take_at(self, x: Tensor, places: Sequence[np.ndarray]) -> Tensor:
        """Return x[places], (K, ...): rows of x, in the order of their places.

        The host does not wait for the device, as it would to learn which rows a condition means.
        On a CPU only these rows are copied, even if x is permuted.

        Args:
            places: for one or more of the first dimensions of x, the index of each row, (K,) int64.

        Raises:
            ValueError: other shapes or dtypes, or an index outside its dimension.
        """

    def upsample_nearest_2x(self, x: Tensor) -> Tensor:
        """Enlarge (B, C, H, W) to (B, C, 2H, 2W), each value four times."""

    def cells(self, height: int, width: int, like: Tensor) -> Tensor:
        """Return column and row of each cell of a map, (1, 1, H, W, 2), dtype and device of like.

        Height and width come from the shape of a tensor: a graph may learn them when it runs.
        """

    # Images (B, C, H, W), float in, same dtype and memory layout out
    def resize_bilinear(self, x: Tensor, height: int, width: int) -> Tensor:
        """Resize to height and width: between the centres of pixels, without antialiasing.

        B may be 0. No gradient is promised.

        Raises:
            ValueError: a side below 1, given or wanted.
        """

    def flip_columns(self, x: Tensor) -> Tensor:
        """Return each image with left and right exchanged; no gradient is promised."""

    def pad_to(self, x: Tensor, height: int, width: int, value: float) -> Tensor:
        """Enlarge to height and width by a value at the bottom and right (gradient).

        Raises:
            ValueError: a side that is smaller than that of x.
        """

    def channels_last(self, x: Tensor) -> Tensor:
        """Return the same values, the channels of a pixel side by side in memory.

        Raises:
            ValueError: on a backend that does not support it.
        """


class NN(Protocol):
    """Layers (classes, constructed as named here) and functions of modules.

    The methods are static and the classes nested so that mypy accepts `class Head(nn.Module)`.
    Initial weights are the frameworks' own and differ: load them.
    """

    class Module:
        """The part of the frameworks' own module class that Duet's code may use.

        Sub-modules, parameters and buffers are attributes. Subclasses define `forward`.
        """

        training: bool

        def __call__(self, *inputs: Any) -> Any: ...
        def __getattr__(self, name: str) -> Any: ...
        def train(self, mode: bool = True) -> Any: ...
        def eval(self) -> Any: ...
        def modules(self) -> Any: ...

    class ModuleList(Module):
        """Sub-modules in a list: parameter names start with the position."""

        def __init__(self, modules: Iterable[Any] = ()) -> None: ...
        def __iter__(self) -> Any: ...
        def __len__(self) -> Any: ...
        def __getitem__(self, index: int) -> Any: ...

    class Sequential(Module):
        """Sub-modules called one after the other; without any, its output is its input."""

        def __init__(self, *modules: Any) -> None: ...
        def __iter__(self) -> Any: ...
        def __getitem__(self, index: int) -> Any: ...

    @staticmethod
    def Conv2d(
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> Any:
        """Map (B, in, H, W) to (B, out, H', W'); weight (out, in / groups, k, k), dtype as x."""

    @staticmethod
    def BatchNorm2d(num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> Any:
        """Normalize by batch statistics in training, by running statistics in evaluation.

        The running variance is unbiased. eps and momentum are rounded to float32, also for float64
        tensors.

        Raises:
            ValueError: when called in training with one value per channel, which has no variance,
                or under a backend that does not train.
        """

    @staticmethod
    def MaxPool2d(kernel_size: int, stride: int, padding: int = 0) -> Any:
        """Take the largest value of each window; padding counts as minus infinity."""

    @staticmethod
    def state_arrays(module: Any) -> dict[str, np.ndarray]:
        """Copy parameters and buffers by dotted name, in the public order."""

    @staticmethod
    def load_state_arrays(module: Any, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy arrays into the module, cast to its dtypes; requires_grad stays as it was.

        Raises:
            ValueError: names or shapes do not match; the message names them. Nothing is loaded.
        """

    @staticmethod
    def register_buffer(module: Any, name: str, array: np.ndarray) -> None:
        """Make a NumPy array a buffer of the module: saved and moved with it, not trained."""

    @staticmethod
    def register_parameter(module: Any, name: str, array: np.ndarray) -> None:
        """Make a NumPy array of float32 a parameter of the module: saved, moved and trained."""

    @staticmethod
    def place(module: Any, device: str, dtype: str) -> Any:
        """Move the module to a device and its float tensors to a dtype; return the module."""

    @staticmethod
    def frozen_copy(module: Any) -> Any:
        """Return an independent copy in evaluation mode; nothing in it requires a gradient."""

    @staticmethod
    def to_torchscript(module: Any, example: Tensor, text: str) -> bytes:
        """Return the TorchScript file of a module in evaluation, which maps one tensor to a tensor
        or to a tuple of them.

        Args:
            example: the module runs on it once; the file may take only tensors of this shape.
            text: kept beside it; in the file, a zip archive, it is "NAME/extra/metadata.json".

        Raises:
            ValueError: on a backend that does not support it.
        """

    @staticmethod
    def from_torchscript(content: bytes) -> Callable[[Tensor], Any]:
        """Load a TorchScript file on the CPU; return a function that runs it: it takes one tensor
        and returns what the module returned.

        The file is a program: it can do more than compute. Threads may share what runs it.

        Raises:
            ValueError: damaged, or on a backend that does not support it.
        """


class Autograd(Protocol):
    """Gradients as a model in evaluation needs them: none are recorded."""

    def no_grad(self) -> AbstractContextManager[Any]:
        """Return a context in which nothing is recorded for a backward pass."""


class Device(Protocol):
    """The devices that this process can use."""

    def resolve(self, name: str) -> str:
        """Return the device for "cpu"; "0" or "cuda:0"; "" (the first GPU, else the CPU).

        With several processes on a machine, local rank i takes entry i of a list such as "0,1" or,
        for "", GPU i.

        Raises:
            BackendError: a device that is not there (the message names those that are); more
                processes than devices; a list for one process.
        """

    def describe(self, device: str) -> str:
        """Return one line for the log: framework version and device."""

    def host_threads(self) -> int:
        """Return how many threads the CPU operations that this thread begins take together."""

    def set_host_threads(self, number: int) -> None:
        """Set how many threads the CPU operations that this thread begins take, from now on.

        Other threads that have begun operations keep their number; those that begin later may take
        this one. A backend whose operations take one thread leaves it at that.

        Raises:
            ValueError: number is below 1.
        """

    def host_bytes(self, shape: tuple[int, ...], device: str) -> np.ndarray:
        """Return a uint8 array that is to be filled, and then copied to the device.

        With a GPU it is page-locked, if the backend can do that: `ops.tensor` then reads it while
        the host goes on, so it must not change after that. OneFlow 0.9 has no such memory.
        """

    def supports(self, capability: str) -> bool:
        """Return whether a capability of `CAPABILITIES` is there; ValueError for another name."""


CAPABILITIES: dict[str, str] = {
    "cuda": "training and validation on a CUDA device that this process can see",
    "half_gradients": "gradients sent from process to process as bfloat16",
    "channels_last": "feature maps with the channels of a pixel side by side in memory",
    "torchscript": "models written to, and run from, TorchScript files",
}

MODULES: dict[str, type] = {"ops": Ops, "nn": NN, "autograd": Autograd, "device": Device}
