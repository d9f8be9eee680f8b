"""The training contract: extends the inference contract."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ParamSpec, Protocol, TypeVar

import numpy as np

from duet.backend.contract import inference
from duet.backend.contract.dist import Dist, Stage
from duet.backend.contract.fused import Fused
from duet.backend.contract.inference import Tensor
from duet.backend.contract.optim import MultiTensor, Optim

Shape = Sequence[int]
P = ParamSpec("P")
R = TypeVar("R")
Raw = TypeVar("Raw")
Labels = TypeVar("Labels")
Loss = TypeVar("Loss")


class Ops(inference.Ops, Protocol):
    """Additional tensor functions for losses and their gradients."""

    # Creation
    def zeros(self, shape: Shape, dtype: str = "float32", device: str = "cpu") -> Tensor:
        """Return zeros; ValueError for a negative size or an unknown dtype or device."""

    def full(
        self, shape: Shape, value: float, dtype: str = "float32", device: str = "cpu"
    ) -> Tensor:
        """Return a tensor filled with one value; ValueError as in `zeros`."""

    # Elementwise, float in, same dtype out (gradient)
    def atan(self, x: Tensor) -> Tensor: ...
    def clamp(self, x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
        """Clamp values to [low, high]; gradient 1 inside and at the limits, 0 outside.

        NaN stays NaN.
        """

    def minimum(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the elementwise minimum of two tensors of one dtype, broadcast (gradient).

        NaN where either is NaN, as in NumPy; both get the full gradient there. In a tie each gets
        half.
        """

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the elementwise maximum, otherwise as `minimum`."""

    def where(self, condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
        """Return x where the bool condition holds, y elsewhere, broadcast (gradient).

        x and y are float or int64. The result has the dtype of the tensor operand; two Python
        numbers give float32.

        Raises:
            ValueError: two tensors of different dtypes.
        """

    # Reductions (gradient). dim None reduces to 0-d.
    def sum(self, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Return the sum; 0 for an empty float tensor."""

    def amax(self, x: Tensor, dim: int) -> Tensor:
        """Return the maximum along dim; NaN propagates. ValueError if dim is empty."""

    def top_k(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest values per row of (N, R) and their columns; no gradient.

        Values are in descending order. The choice and order among equal values are unspecified.

        Returns:
            (N, k), and (N, k) int64.

        Raises:
            ValueError: x is not 2-d, or k is outside 1 to R.
        """

    # Shape and index (gradient)
    def stack(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Stack along a new dimension; ValueError for no tensors or different dtypes."""

    def put_rows(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        """Return a copy of x with x[index] = values along dimension 0.

        index: (K,) int64, no repeats. values: (K, ...), x's dtype and row shape.

        Raises:
            ValueError: wrong shape or dtype of values, or an index that `take_rows` rejects.
        """

    def put_largest(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        """Return a copy of x (N,) in which x[i] is the largest of itself and all values at index i.

        No gradient; NaN propagates. OneFlow 0.9 has no such kernel: its host computes it, and
        waits for the device.

        index: (K,) int64. values: (K,), x's dtype.

        Raises:
            ValueError: as in `put_rows`.
        """

    def repeated(self, counts: np.ndarray, device: str = "cpu") -> Tensor:
        """Return each i counts[i] times, (sum of counts,) int64, in ascending order.

        counts: (N,) int64. Their sum is known on the host, which does not wait for the device.
        """

    def add_rows_(self, x: Tensor, index: Tensor, values: Tensor) -> None:
        """Add row values[i] to x[index[i]] in place, no gradient; rows may repeat.

        Args:
            index: (K,) int64.
            values: (K, ...), x's dtype.

        Raises:
            ValueError: as in `put_rows`.
        """

    # Loss and weights
    def bce_with_logits(
        self, logits: Tensor, target: Tensor, positive_weight: float = 1.0
    ) -> Tensor:
        """Return the mean binary cross-entropy with logits, 0-d; NaN if empty.

        positive_weight multiplies the target term, like `pos_weight` in both frameworks. target
        has the dtype of logits and is constant: it receives no gradient.

        Raises:
            ValueError: logits and target have different shapes.
        """

    def log_softmax(self, x: Tensor) -> Tensor:
        """Return the logarithm of `softmax`, without overflow (gradient)."""

    def bce_terms(self, logits: Tensor, target: Tensor, positive_weight: float = 1.0) -> Tensor:
        """Return the elementwise binary cross-entropy, whose mean is `bce_with_logits`.

        Same shape and dtype as logits (gradient); otherwise as `bce_with_logits`.
        """

    def take_rows_and_column(self, x: Tensor, index: Tensor, column: int) -> tuple[Tensor, Tensor]:
        """Return `take_rows(x, index)` and one column of all rows (gradient).

        PyTorch allocates one gradient the size of x; separate operations need two and their sum.

        Args:
            x: (N, R). The column of half-precision values is returned in float32 without casting
                all of x; their gradient accumulates in half precision.
            index: (K,) int64; rows may repeat.
            column: 0 to R - 1.

        Returns:
            (K, R) and (N,).

        Raises:
            ValueError: as in `take_rows`.
        """

    def restore_(self, values: Sequence[Tensor], others: Sequence[Tensor], lost: Tensor) -> None:
        """Replace non-finite elements of values with those of others, in place, no gradient.

        Args:
            values: tensors of one float dtype.
            others: same number, dtype and shapes.
            lost: 0-d float32; if 0, nothing changes.

        Raises:
            ValueError: the numbers of tensors differ.
        """


class NN(inference.NN, Protocol):
    """Functions for modules in training."""

    @staticmethod
    def named_parameters(module: inference.NN.Module) -> Iterator[tuple[str, Tensor]]:
        """Yield each parameter once with its dotted name, in definition order."""

    @staticmethod
    def state_tensors(module: inference.NN.Module) -> dict[str, Tensor]:
        """Return parameters and buffers by dotted name: detached, sharing the module's memory."""

    @staticmethod
    def float_tensors(module: inference.NN.Module) -> Callable[[], Sequence[Tensor]]:
        """Return a function that lists the float parameters and buffers in state order.

        The slow part, finding their owners, is done once. The function returns the tensors that
        are current when it is called, even after `place` or loading a state.
        """

    @staticmethod
    def pack(module: inference.NN.Module) -> None:
        """Move the float parameters and buffers of the state into one contiguous buffer.

        `multi_tensor.ema_update_` then treats two modules packed alike as one tensor each. The
        tensor objects, values, dtypes, shapes and dimension order stay the same, so optimizers
        keep working. Integer tensors are not moved. Copying or moving the module undoes packing.
        A backend may do nothing where there is no gain, or for a module of several dtypes.
        """

    @staticmethod
    def lay_channels_last(module: inference.NN.Module) -> None:
        """Convert convolution weights to channels-last memory layout.

        Otherwise every pass over channels-last maps reorders the weights, and the gradients back.
        The tensors stay the same objects with the same values.

        Raises:
            ValueError: the backend lacks this layout; see `CAPABILITIES`.
        """

    @staticmethod
    def set_trainable(parameters: Iterable[Tensor], trainable: bool) -> None:
        """Set whether parameters require a gradient; if not, drop the current one."""

    @staticmethod
    def synchronize_batch_norm(module: inference.NN.Module) -> None:
        """Make the module's BatchNorm layers use statistics over all ranks from now on."""


class Device(inference.Device, Protocol):
    """Time and memory measurement of a step."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether an error means that the device or host is out of memory.

        PyTorch raises it on allocation and can continue. OneFlow 0.9 usually terminates the
        process instead of raising.
        """

    def synchronize(self, device: str) -> None:
        """Wait until all work queued on the device is done."""

    def peak_memory(self, run: Callable[[], object], device: str) -> int:
        """Return this process's peak memory on the device during a call, in bytes.

        Memory cached by the framework counts. On a CPU it is the process's resident memory.
        """

    def used_memory(self, device: str) -> int | None:
        """Return the most bytes that the framework has held on a GPU so far; None for a CPU.

        OneFlow 0.9 knows no such figure: there it is what all processes hold now.
        """

    def free_memory(self, device: str) -> int | None:
        """Return a GPU's free bytes, excluding the framework's cache; None for a CPU."""

    def mark(self, device: str) -> object:
        """Mark the point in time when all work now queued on the device is done.

        It blocks only if the framework has no device events.
        """

    def seconds_between(self, start: object, end: object) -> float:
        """Return the time between two marks; wait until the later one is reached."""

    def rounds_to_tf32(self, device: str) -> bool:
        """Return whether float32 convolutions on the device may round their inputs to TF32.

        TF32 keeps 10 of float32's 23 mantissa bits: faster, but no longer the same work. Setting
        NVIDIA_TF32_OVERRIDE=0 before the start disables it for every backend.
        """

    def compute_exactly(self, device: str) -> None:
        """Disable TF32 for float32 convolutions and matrix products in this process, on all GPUs.

        OneFlow 0.9 has no such switch: `rounds_to_tf32` still returns True.
        """


class Autograd(inference.Autograd, Protocol):
    """Gradients for eager and compiled execution."""

    def recording(self) -> AbstractContextManager[object]:
        """Return a context in which gradients are recorded, even if the caller turned that off."""

    def variable(self, array: np.ndarray, device: str = "cpu") -> Tensor:
        """Copy a float array into a leaf tensor that requires a gradient."""

    def gradients(self, output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return d output / d input for a 0-d output; zeros if it does not depend on an input.

        Raises:
            ValueError: the output is not 0-d, or an input does not require a gradient.
        """

    def value_and_backward(
        self,
        model: Callable[[Tensor], Raw],
        loss: Callable[[Raw, Labels], Loss],
        images: Tensor,
        targets: Labels,
        stage: Stage,
    ) -> Loss:
        """Return terms = loss(model(images), targets) after a backward pass from `terms.total`.

        Gradients accumulate. The stages "forward", "loss" and "backward" are entered but not
        waited for: they are timed with `device.mark`.
        """

    def compile_problem(self, device: str) -> str | None:
        """Return a short reason why `compiled` does not work on this machine; None if it does.

        Tested once per device by compiling a small function and its gradient.
        """

    def compiled(
        self, function: Callable[P, R], most_shapes: int = 1, graphs: bool = False
    ) -> Callable[P, R]:
        """Return the function, compiled with its gradient on its first call.

        Values differ only by rounding. Each set of tensor shapes is compiled separately, up to
        `most_shapes` sets; calls with other shapes run the plain function. Compile time is logged.

        Args:
            graphs: on a GPU, record the kernels of a call and its gradient and replay them. Calling
                a module then starts a pass, which overwrites earlier results of functions compiled
                this way, except 0-d tensors and the gradients of the module's parameters. Do not
                replace the module's tensors between calls, or every call is recorded again.

        Raises:
            ValueError: the backend has no compiler.
        """

    def clip_gradients(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Scale all gradients so that their global L2 norm is at most max_norm.

        Returns:
            The norm before scaling, 0-d; parameters without a gradient count as 0. It is finite if
            all gradients are, even if the squares of float32 gradients overflow.
        """


class Amp(Protocol):
    """Mixed precision: half-precision computation with float32 weights."""

    def supported(self, device: str) -> tuple[str, ...]:
        """Return the `autocast` dtypes of the device, from "bfloat16" and "float16"."""

    def preferred(self, device: str) -> str:
        """Return the dtype that trains fastest on the device: one of `supported`, or "float32" if
        half precision gains nothing, and on every CPU.

        A run thus computes the same numbers on all CPUs and with all backends.
        """

    def autocast(self, device: str, dtype: str) -> AbstractContextManager[object]:
        """Return a context in which convolutions and matrix products compute in half precision.

        Range-sensitive operations stay float32. Layers return either dtype; convert results with
        `ops.cast(x, "float32")`. Weights and their gradients keep their dtype. With "float32" the
        context does nothing. The backward pass needs no context.

        Raises:
            ValueError: dtype is neither in `supported(device)` nor "float32".
        """

    def cast_together(
        self, module: inference.NN.Module, dtype: str
    ) -> AbstractContextManager[None]:
        """Return a context in which a module's convolution weights are in half precision.

        Use it for one forward pass inside `autocast`, which would cast them layer by layer: the
        values and gradients are the same, with a few launches instead of some per layer. It does
        nothing with "float32" or for a `dist.data_parallel` module, whose ranks exchange gradients
        during the backward pass.
        """

    def cast_for_good(self, module: inference.NN.Module, dtype: str) -> None:
        """Cast a module's convolution weights to a half precision, for inference in `autocast`.

        The outputs are those that `autocast` gives with the float32 weights, which it would cast
        again in each pass.

        Raises:
            ValueError: the backend does not support it.
        """

    def scale_gradients_(self, parameters: Iterable[Tensor], factor: float) -> None:
        """Multiply the current gradients in place."""


MODULES: dict[str, type] = {
    "ops": Ops,
    "nn": NN,
    "optim": Optim,
    "fused": Fused,
    "multi_tensor": MultiTensor,
    "autograd": Autograd,
    "amp": Amp,
    "dist": Dist,
    "device": Device,
}
