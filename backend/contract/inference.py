"""The inference contract: everything that an inference-only backend must implement.

`backend/onnx` implements only this contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import EllipsisType
from typing import Any, Protocol, TypeVar

import numpy as np

M = TypeVar("M", bound="NN.Module")
Part = int | slice | EllipsisType
Index = Part | tuple[Part, ...]


class Tensor(Protocol):
    """Methods and operators of a framework tensor that Duet's code may use.

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
        """Raise to a whole power, or to any power if elements are non-negative; else NaN.

        Fractional powers of -0.0 and -inf are unspecified: some frameworks compute a square root
        for 0.5, which IEEE 754 defines differently from a power.
        """

    def __neg__(self) -> Tensor: ...
    def __lt__(self, other: Tensor | float) -> Tensor: ...
    def __le__(self, other: Tensor | float) -> Tensor: ...
    def __gt__(self, other: Tensor | float) -> Tensor: ...
    def __ge__(self, other: Tensor | float) -> Tensor: ...
    def __getitem__(self, index: Index) -> Tensor:
        """Index with integers, slices and `...`; view or copy. For tensors: `ops.take_rows`."""

    def reshape(self, *shape: int) -> Tensor:
        """Reshape to one or more sizes; -1 infers a size from the others."""

    def permute(self, *dims: int) -> Tensor: ...
    def detach(self) -> Tensor: ...


class Ops(Protocol):
    """Tensor functions that a model calls in evaluation mode."""

    # NumPy boundary, dtype and device
    def tensor(self, array: np.ndarray, device: str = "cpu") -> Tensor:
        """Copy a NumPy array of a promised dtype into a tensor of the same shape and dtype.

        Here and elsewhere, device is a value returned by `Device.resolve` on this rank.

        Raises:
            ValueError: unsupported dtype or missing device.
        """

    def to_numpy(self, x: Tensor) -> np.ndarray:
        """Copy to host memory, detached; the copy is complete when the call returns."""

    def to_numpy_later(self, x: Tensor) -> Callable[[], np.ndarray]:
        """Start a copy to the host; return a function that waits for it and returns the array.

        It waits for work queued before this call and, where the framework can distinguish them,
        not for work queued after it. Later changes to x do not affect the copy.
        """

    def dtype_of(self, x: Tensor) -> str:
        """Return the name of the dtype, "float32" for instance."""

    def device_of(self, x: Tensor) -> str:
        """Return the name of the device, "cpu" or "cuda:0"."""

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Convert to another dtype, truncated towards zero from float to int (gradient)."""

    def normalize_images(self, images: Tensor, dtype: str, channels_last: bool = False) -> Tensor:
        """Convert (B, C, H, W) uint8 to a float dtype, divided by 255; same shape and order.

        channels_last: store the channels of each pixel next to each other, in the result and in
        the layers' outputs. Values differ from the default layout only by rounding.

        Raises:
            ValueError: wrong dtype or number of dimensions, or channels_last on a backend
                without it.
        """

    # Elementwise, float in, same dtype out (gradient)
    def sigmoid(self, x: Tensor) -> Tensor: ...
    def silu(self, x: Tensor) -> Tensor:
        """Return x · sigmoid(x)."""

    def leaky_relu(self, x: Tensor, slope: float) -> Tensor:
        """Return x where x > 0, else slope · x; the gradient at 0 is slope.

        The slope is rounded to float32, even for float64 tensors.
        """

    # Products and means (gradient)
    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply matrices (..., N, K) and (..., K, M) with equal leading dimensions.

        Raises:
            ValueError: the shapes do not match or the dtypes differ.
        """

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Map (..., in) to (..., out) with a weight (out, in) and bias (out,).

        Raises:
            ValueError: the shapes do not match or the dtypes differ.
        """

    def softmax(self, x: Tensor) -> Tensor:
        """Return the softmax over the last dimension, without overflow."""

    # Reductions (gradient). dim None reduces to 0-d.
    def mean(self, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Return the mean; NaN if empty."""

    # Shape and index (gradient)
    def cat(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Concatenate along a dimension; ValueError for no tensors or different dtypes."""

    def take_rows(self, x: Tensor, index: Tensor) -> Tensor:
        """Return x[index] along dimension 0, index (K,) int64; ValueError outside 0 to len(x) - 1.

        The range is checked only on a CPU, where that is cheap.
        """

    def take_at(self, x: Tensor, places: Sequence[np.ndarray]) -> Tensor:
        """Return x[places], (K, ...): rows of x, in the order of places.

        The host does not wait for the device, as boolean indexing would. On a CPU only these rows
        are copied, even if x is permuted.

        Args:
            places: row indices for one or more leading dimensions of x, each (K,) int64.

        Raises:
            ValueError: wrong shapes or dtypes, or an index out of range.
        """

    def upsample_nearest_2x(self, x: Tensor) -> Tensor:
        """Upsample (B, C, H, W) to (B, C, 2H, 2W) by repeating each value."""

    def arange(self, count: int, dtype: str = "int64", device: str = "cpu") -> Tensor:
        """Return 0, 1, ... count - 1; ValueError for a negative count or an unknown dtype."""

    def cells(self, height: int, width: int, like: Tensor) -> Tensor:
        """Return each cell's column and row, (1, 1, H, W, 2), with like's dtype and device.

        Height and width come from a tensor's shape: a graph may only know them when it runs.
        """

    # Images (B, C, H, W), float in, same dtype and memory layout out
    def resize_bilinear(self, x: Tensor, height: int, width: int) -> Tensor:
        """Resize to height and width, aligned at pixel centres, without antialiasing.

        B may be 0. No gradient is promised.

        Raises:
            ValueError: an input or output side below 1.
        """

    def flip_columns(self, x: Tensor) -> Tensor:
        """Flip each image horizontally; no gradient is promised."""

    def pad_to(self, x: Tensor, height: int, width: int, value: float) -> Tensor:
        """Pad to height and width with a value at the bottom and right (gradient).

        Raises:
            ValueError: height or width smaller than that of x.
        """

    def channels_last(self, x: Tensor) -> Tensor:
        """Return the same values in channels-last memory layout.

        Raises:
            ValueError: the backend does not support it.
        """


class NN(Protocol):
    """Layers (classes with these constructors) and module functions.

    The methods are static and the classes nested so that mypy accepts `class Head(nn.Module)`.
    Initial weights are framework-specific: load them instead.
    """

    class Module:
        """The part of the frameworks' module class that Duet's code may use.

        Sub-modules, parameters and buffers are attributes. Subclasses define `forward`.
        """

        training: bool

        def __call__(self, *inputs: object) -> Any: ...
        def __getattr__(self, name: str) -> Any: ...
        def train(self, mode: bool = True) -> Any: ...
        def eval(self) -> Any: ...
        def modules(self) -> Any: ...

    class ModuleList(Module):
        """List of sub-modules: parameter names start with the position."""

        def __init__(self, modules: Iterable[NN.Module] = ()) -> None: ...
        def __iter__(self) -> Any: ...
        def __len__(self) -> Any: ...
        def __getitem__(self, index: int) -> Any: ...

    class Sequential(Module):
        """Sub-modules called in sequence; the identity if empty."""

        def __init__(self, *modules: NN.Module) -> None: ...
        def __iter__(self) -> Any: ...
        def __getitem__(self, index: int) -> Any: ...

    class Conv2d(Module):
        """Map (B, in, H, W) to (B, out, H', W'); weight (out, in / groups, k, k), x's dtype."""

        def __init__(
            self,
            in_channels: int,
            out_channels: int,
            kernel_size: int,
            stride: int = 1,
            padding: int = 0,
            *,
            groups: int = 1,
            bias: bool = True,
        ) -> None: ...

    class MaxPool2d(Module):
        """Take the largest value of each window; padding counts as minus infinity."""

        def __init__(self, kernel_size: int, stride: int, padding: int = 0) -> None: ...

    @staticmethod
    def BatchNorm2d(num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> NN.Module:
        """Normalize with batch statistics in training, running statistics in evaluation.

        The running variance is unbiased. eps and momentum are rounded to float32, even for float64
        tensors.

        Raises:
            ValueError: called in training mode with one value per channel, which has no variance,
                or on an inference-only backend.
        """

    @staticmethod
    def state_arrays(module: NN.Module) -> dict[str, np.ndarray]:
        """Return copies of parameters and buffers by dotted name, in the public order."""

    @staticmethod
    def load_state_arrays(module: NN.Module, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy arrays into the module, cast to its dtypes; requires_grad is unchanged.

        Raises:
            ValueError: names or shapes do not match; the message lists them. Nothing is loaded.
        """

    @staticmethod
    def register_buffer(module: NN.Module, name: str, array: np.ndarray) -> None:
        """Register a NumPy array as a buffer: saved and moved with the module, not trained."""

    @staticmethod
    def register_parameter(module: NN.Module, name: str, array: np.ndarray) -> None:
        """Register a float32 NumPy array as a parameter: saved, moved and trained."""

    @staticmethod
    def place(module: M, device: str, dtype: str) -> M:
        """Move the module to a device and its float tensors to a dtype; return the module."""

    @staticmethod
    def frozen_copy(module: M) -> M:
        """Return an independent copy in evaluation mode that requires no gradients."""

    @staticmethod
    def to_torchscript(module: NN.Module, example: Tensor, text: str) -> bytes:
        """Return a TorchScript file of a module in evaluation mode that maps one tensor to a tensor
        or a tuple of tensors.

        Args:
            example: traced input; the file may accept only tensors of this shape.
            text: stored in the file, a zip archive, as "NAME/extra/metadata.json".

        Raises:
            ValueError: the backend does not support it.
        """

    @staticmethod
    def from_torchscript(content: bytes) -> Callable[[Tensor], Tensor | tuple[Tensor, ...]]:
        """Load a TorchScript file on the CPU; return a function that runs it: it takes one tensor
        and returns the module's output.

        The file is a program and can do more than compute. Threads may share the function.

        Raises:
            ValueError: the file is damaged, or the backend does not support TorchScript.
        """


class Autograd(Protocol):
    """Gradients for a model in evaluation mode: none are recorded."""

    def no_grad(self) -> AbstractContextManager[object]:
        """Return a context in which nothing is recorded for a backward pass.

        In it the caller's autocast has no effect; nor has it in `recording`.
        """


class Device(Protocol):
    """Devices that this process can use."""

    def resolve(self, name: str) -> str:
        """Return the device for "cpu"; "0" or "cuda:0"; "" (the first GPU, else the CPU).

        With several processes per machine, local rank i takes entry i of a list such as "0,1", or
        GPU i for "".

        Raises:
            BackendError: a missing device (the message lists those available), more processes than
                devices, or a list for a single process.
        """

    def describe(self, device: str) -> str:
        """Return a log line with the framework version and device."""

    def host_threads(self) -> int:
        """Return the number of threads used by CPU operations that this thread starts."""

    def set_host_threads(self, number: int) -> None:
        """Set the number of threads used by CPU operations that this thread starts.

        Threads that have already started operations keep their number; those that start later may
        use this one. A backend with single-threaded operations ignores it.

        Raises:
            ValueError: number is below 1.
        """

    def page_lock(self, memory: np.ndarray, device: str) -> None:
        """Let a GPU read this memory by itself until the array is freed.

        `ops.tensor` of an array that lies in it then returns before it has been read: change it
        only after `copies_end`. Without effect on a CPU, and where a backend or system cannot.
        """

    def copies_end(self, device: str) -> Callable[[], None]:
        """Return a function that waits until page-locked memory has been read by earlier calls."""

    def supports(self, capability: str) -> bool:
        """Return whether a capability from `CAPABILITIES` is supported; ValueError if unknown."""

    def shapes_repeat(self, device: str, repeat: bool) -> AbstractContextManager[None]:
        """Return a context that declares whether a GPU's convolutions see the same shapes again.

        If so, each new shape is computed by several kernels once, and from then on by the fastest.
        It does nothing on a CPU, and with OneFlow 0.9, whose switch cannot be read and set back.
        """


CAPABILITIES: dict[str, str] = {
    "cuda": "training and validation on a CUDA device that this process can see",
    "channels_last": "feature maps with the channels of a pixel side by side in memory",
    "copies_beside": "copies to and from a CUDA device while it computes",
    "finishing": "colours and flips of training images on the device, in a compiled function",
    "torchscript": "models written to, and run from, TorchScript files",
}

MODULES: dict[str, type] = {"ops": Ops, "nn": NN, "autograd": Autograd, "device": Device}
