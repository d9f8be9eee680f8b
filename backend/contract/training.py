"""The contract of training: the contract of running a model, and what is added here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import numpy as np

from duet.backend.contract import inference
from duet.backend.contract.dist import Dist, Stage
from duet.backend.contract.fused import Fused
from duet.backend.contract.inference import Tensor
from duet.backend.contract.optim import MultiTensor, Optim

Shape = Sequence[int]
Loss = TypeVar("Loss")


class Ops(inference.Ops, Protocol):
    """Further functions of tensors, which a loss and its gradients need."""

    # Creation
    def zeros(self, shape: Shape, dtype: str = "float32", device: str = "cpu") -> Tensor:
        """Return zeros; ValueError for a negative size, an unknown dtype or device."""

    def full(
        self, shape: Shape, value: float, dtype: str = "float32", device: str = "cpu"
    ) -> Tensor:
        """Return one value everywhere; ValueError as in `zeros`."""

    # Element by element, float in, same dtype out (gradient)
    def atan(self, x: Tensor) -> Tensor: ...
    def clamp(self, x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
        """Limit values to [low, high]; gradient 1 inside and at the limits, 0 outside.

        NaN stays NaN.
        """

    def minimum(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the smaller of two tensors of one dtype, broadcast (gradient).

        NaN where one of them is NaN, as in NumPy; both have the whole gradient there. A tie shares
        it.
        """

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the larger of two tensors of one dtype, broadcast (gradient).

        NaN where one of them is NaN, as in NumPy; both have the whole gradient there. A tie shares
        it.
        """

    def where(self, condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
        """Return x where the bool condition holds, y elsewhere, broadcast (gradient).

        x and y are float or int64. The result has the dtype of the tensor among them; two Python
        numbers give float32.

        Raises:
            ValueError: two tensors of unequal dtypes.
        """

    # Reductions (gradient). dim None reduces to 0-d.
    def sum(self, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Return the sum; 0 for an empty float tensor."""

    def amax(self, x: Tensor, dim: int) -> Tensor:
        """Return the largest value along dim, NaN where one is; ValueError if dim is empty."""

    def top_k(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest values of each row of (N, R), and their columns; no gradient.

        They come in descending order. Which of equal values come in, and in which order, is open.

        Returns:
            (N, k), and (N, k) int64.

        Raises:
            ValueError: another number of dimensions, or k not from 1 to R.
        """

    # Shape and index (gradient)
    def stack(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Join along a new dimension; ValueError for no tensors or unequal dtypes."""

    def put_rows(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        """Return a copy of x with x[index] = values along dimension 0.

        index (K,) int64 without repeats, values (K, ...) of x's dtype and row shape.

        Raises:
            ValueError: values of another shape or dtype; an index that `take_rows` refuses.
        """

    def add_at_(self, x: Tensor, index: tuple[int | slice, ...], values: Tensor) -> None:
        """Add values to x[index], by integers and slices of step 1, in place, no gradient.

        Values may be a part of x, and overlap: they count as they were before.

        Raises:
            ValueError: values of another shape or dtype than x[index].
        """

    # Loss and weights
    def bce_with_logits(
        self, logits: Tensor, target: Tensor, positive_weight: float = 1.0
    ) -> Tensor:
        """Return the mean binary cross-entropy with logits, 0-d; NaN when empty.

        positive_weight multiplies the term of target, as `pos_weight` does in both frameworks.
        target has the dtype of logits and is a constant: it gets no gradient.

        Raises:
            ValueError: logits and target of unequal shapes.
        """

    def log_softmax(self, x: Tensor) -> Tensor:
        """Return the logarithm of `softmax`, without overflow (gradient)."""

    def bce_terms(self, logits: Tensor, target: Tensor, positive_weight: float = 1.0) -> Tensor:
        """Return the binary cross-entropy of each element, of which `bce_with_logits` is the mean.

        Shape and dtype are those of logits (gradient); otherwise it is as `bce_with_logits`.
        """

    def ema_update_(
        self,
        averages: Sequence[Tensor],
        values: Sequence[Tensor],
        decay: float,
        lost: Tensor | None = None,
    ) -> None:
        """Set averages[i] = decay * averages[i] + (1 - decay) * values[i], in place, no gradient.

        An EMA that equals its value stays as it is, bit for bit.

        Args:
            lost: 0-d float32, 0 or 1. Where it is 1, the averages of finite values stay as they
                are.

        Raises:
            ValueError: unequal numbers of tensors.
        """

    def restore_(self, values: Sequence[Tensor], others: Sequence[Tensor], lost: Tensor) -> None:
        """Replace numbers of values that are not finite by those of others, in place, no gradient.

        Args:
            values: tensors of one float dtype.
            others: as many, of the same dtype and shapes.
            lost: 0-d float32; if it is 0, all values stay as they are.

        Raises:
            ValueError: unequal numbers of tensors.
        """


class NN(inference.NN, Protocol):
    """Functions of modules whose weights change."""

    @staticmethod
    def named_parameters(module: Any) -> Iterator[tuple[str, Tensor]]:
        """Yield each parameter once, with its dotted name, in the order of definition."""

    @staticmethod
    def state_tensors(module: Any) -> dict[str, Tensor]:
        """Return parameters and buffers by dotted name: detached, memory shared with the module."""

    @staticmethod
    def float_tensors(module: Any) -> Callable[[], Sequence[Tensor]]:
        """Return a function that lists the float parameters and buffers, in order of the state.

        Finding where they are kept takes most of the time and is done once. The function returns
        the tensors of the moment of its call: also after `place` or a loaded state.
        """

    @staticmethod
    def pack(module: Any) -> None:
        """Lay the float parameters and buffers of the state side by side in one memory.

        `multi_tensor.ema_update_` then takes two modules packed alike as one tensor each. Nothing
        else changes: the tensors are the same objects, with their values, dtypes, shapes and order
        of dimensions in memory, so an optimizer keeps them. Integers stay where they are. Copying
        or placing the module elsewhere undoes it. A backend may do nothing where there is no gain,
        or for a module of several dtypes.
        """

    @staticmethod
    def lay_channels_last(module: Any) -> None:
        """Lay the weights of convolutions in memory as channels-last maps are laid.

        Otherwise each pass over such maps reorders the weights, and the gradients back. The tensors
        are the same objects, with their values.

        Raises:
            ValueError: the backend has no such layout; see `CAPABILITIES`.
        """

    @staticmethod
    def set_trainable(parameters: Iterable[Tensor], trainable: bool) -> None:
        """Set whether these parameters require a gradient; if not, remove the present one."""

    @staticmethod
    def last_batch_statistics(module: Any) -> AbstractContextManager[None]:
        """Return a context in which BatchNorm layers normalize each batch with its own statistics.

        These become their running mean and (unbiased) variance, and stay so afterwards, when the
        layers go on as before. A batch without images leaves the statistics of the one before.
        All other layers keep their mode.
        """

    @staticmethod
    def synchronize_batch_norm(module: Any) -> None:
        """Make its BatchNorm layers use the statistics of all ranks' images, from now on."""


class Device(inference.Device, Protocol):
    """What measures the time and memory of a step."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether an error says that the device or the host has no memory left.

        PyTorch raises it when the memory is asked for, and goes on. OneFlow 0.9 ends the process
        in most places: no error arrives there.
        """

    def synchronize(self, device: str) -> None:
        """Return when all work queued on the device has been done."""

    def peak_memory(self, run: Callable[[], object], device: str) -> int:
        """Return the most bytes that this process has on the device during a call.

        What the framework keeps for later counts. On a CPU it is the process's resident memory.
        """

    def free_memory(self, device: str) -> int | None:
        """Return the free bytes of a GPU, without what the framework keeps; None for a CPU,
        whose memory is the machine's.
        """

    def mark(self, device: str) -> Any:
        """Mark the moment when all work that is now queued on the device is done.

        It waits for that moment only if the framework has no events of the device.
        """

    def seconds_between(self, start: Any, end: Any) -> float:
        """Return the time between two marks of a device; wait until the later one is reached."""

    def rounds_to_tf32(self, device: str) -> bool:
        """Return whether float32 convolutions on the device may round their inputs to TF32.

        TF32 keeps 10 of float32's 23 bits after the point: faster, and no longer the same work.
        NVIDIA_TF32_OVERRIDE=0, set before the start, keeps every backend from it.
        """

    def compute_exactly(self, device: str) -> None:
        """Make this process compute float32 convolutions and products on a device without TF32.

        It stays so, on all GPUs. OneFlow 0.9 has no such switch: `rounds_to_tf32` still says yes.
        """


class Autograd(inference.Autograd, Protocol):
    """Gradients, for eager and compiled execution."""

    def variable(self, array: np.ndarray, device: str = "cpu") -> Tensor:
        """Copy a float array into a leaf tensor that requires a gradient."""

    def gradients(self, output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return d output / d input for a 0-d output; zeros if it does not depend on an input.

        Raises:
            ValueError: an output that is not 0-d, an input that does not require a gradient.
        """

    def value_and_backward(
        self,
        model: Callable[[Tensor], Any],
        loss: Callable[[Any, Any], Loss],
        images: Tensor,
        targets: Any,
        stage: Stage,
    ) -> Loss:
        """Return terms = loss(model(images), targets), after the backward pass of `terms.total`.

        Gradients add to the present ones. It enters the stages "forward", "loss", "backward" and
        waits for none of them: a stage is timed by `device.mark`.
        """

    def compile_problem(self, device: str) -> str | None:
        """Return why `compiled` does not work on this machine, in a few words; None if it does.

        It is tried once per device, by compiling a small function and its gradient.
        """

    def compiled(
        self, function: Callable[..., Any], most_shapes: int = 1, graphs: bool = False
    ) -> Callable[..., Any]:
        """Return the function, to be compiled with its gradient at its first call.

        The values differ only by rounding. It is compiled for each set of tensor shapes, up to
        `most_shapes` sets; calls with further shapes run the plain function. The time of compiling
        is logged.

        Args:
            graphs: on a GPU, record the kernels of a call and of its gradient, and launch them
                together later. A call of a module then begins a pass: it overwrites what functions
                compiled so have returned before, but not numbers (0-d) and gradients of the
                module's parameters. No tensor that the module keeps may be replaced by another
                between two calls, or each call is recorded anew.

        Raises:
            ValueError: the backend has no compiler for it.
        """

    def clip_gradients(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Scale all gradients so that their joint L2 norm is at most max_norm.

        Returns:
            The norm before, 0-d; parameters without a gradient count as 0. It is finite where
            all gradients are, even if the squares of float32 gradients are not.
        """


class Amp(Protocol):
    """Mixed precision: a network that computes in half precision with float32 weights."""

    def supported(self, device: str) -> tuple[str, ...]:
        """Return the dtypes of `autocast` on the device, of "bfloat16" and "float16"."""

    def preferred(self, device: str) -> str:
        """Return the dtype in which a network trains fastest on the device: one of `supported`, or
        "float32" if a half precision gains nothing, and on every CPU.

        So a run computes the same numbers on all CPUs, and with all backends there.
        """

    def autocast(self, device: str, dtype: str) -> AbstractContextManager[Any]:
        """Return a context in which convolutions and matrix products compute in half precision.

        What needs range stays float32. Layers return either dtype; `ops.cast` to "float32" converts
        a result back. Weights and their gradients keep their dtype. With "float32" the context
        changes nothing. The backward pass needs no context.

        Raises:
            ValueError: a dtype that is neither among `supported(device)` nor "float32".
        """

    def cast_together(self, module: Any, dtype: str) -> AbstractContextManager[None]:
        """Return a context in which the weights of a module's convolutions are in a half precision.

        It is for one forward pass inside of `autocast`, which would cast them layer by layer: the
        same numbers and, in the backward pass, the same gradients, in a few launches instead of
        some for each layer. With "float32", and for what `dist.data_parallel` returned, whose ranks
        exchange gradients as they come, it changes nothing.
        """

    def scale_gradients_(self, parameters: Iterable[Tensor], factor: float) -> None:
        """Multiply the present gradients, in place."""


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
