"""The contract of training: all of that of running a model, and what is here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import numpy as np

from backend.contract import inference
from backend.contract.dist import Dist, Stage
from backend.contract.inference import Tensor
from backend.contract.optim import MultiTensor, Optim

Shape = Sequence[int]
Loss = TypeVar("Loss")


class Ops(inference.Ops, Protocol):
    """Functions of tensors that making a loss and its gradients takes besides."""

    # dtype and creation
    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Same values in another dtype, truncated towards zero from float to int (gradient)."""

    def zeros(self, shape: Shape, dtype: str = "float32", device: str = "cpu") -> Tensor: ...
    def full(
        self, shape: Shape, value: float, dtype: str = "float32", device: str = "cpu"
    ) -> Tensor: ...

    # Element by element, float in, same dtype out (gradient)
    def atan(self, x: Tensor) -> Tensor: ...
    def clamp(self, x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
        """Values limited to [low, high]; gradient 1 inside and at the limits, 0 outside."""

    def minimum(self, x: Tensor, y: Tensor) -> Tensor:
        """The smaller of two tensors of one dtype, broadcast (gradient)."""

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        """The larger of two tensors of one dtype, broadcast (gradient)."""

    def where(self, condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
        """x where the bool condition holds, y elsewhere, broadcast (gradient).

        x and y are float or int64. The dtype is that of the tensor among them; two Python
        numbers give float32.

        Raises:
            ValueError: two tensors of unequal dtypes.
        """

    # Reductions (gradient). dim None reduces to 0-d.
    def sum(self, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Sum, 0 of an empty float tensor."""

    def mean(self, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Mean, NaN where there is nothing to average."""

    def amax(self, x: Tensor, dim: int) -> Tensor:
        """Largest value along dim; ValueError when that dimension is empty."""

    # Shape and index (gradient)
    def stack(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Joined along a new dimension; ValueError for no tensors or unequal dtypes."""

    def put_rows(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        """A copy of x with x[index] = values along dimension 0.

        index (K,) int64 without repeats, values (K, ...) of x's dtype and row shape.

        Raises:
            ValueError: values of another shape or dtype; an index that `take_rows` refuses.
        """

    # Loss and weights
    def bce_with_logits(
        self, logits: Tensor, target: Tensor, positive_weight: float = 1.0
    ) -> Tensor:
        """Mean binary cross-entropy with logits, 0-d; NaN when empty.

        positive_weight multiplies the term of target, as `pos_weight` does in both frameworks.
        target has the dtype of logits and is a constant: no gradient reaches it.

        Raises:
            ValueError: logits and target of unequal shapes.
        """

    def ema_update_(
        self, averages: Sequence[Tensor], values: Sequence[Tensor], decay: float
    ) -> None:
        """averages[i] = decay * averages[i] + (1 - decay) * values[i], in place, no gradient.

        An average that equals its value stays as it is, bit for bit.

        Raises:
            ValueError: unequal numbers of tensors.
        """


class NN(inference.NN, Protocol):
    """Functions of modules whose weights change."""

    @staticmethod
    def named_parameters(module: Any) -> Iterator[tuple[str, Tensor]]:
        """Each parameter once, with its dotted name, in the order of definition."""

    @staticmethod
    def state_tensors(module: Any) -> dict[str, Tensor]:
        """Parameters and buffers by dotted name: detached, sharing memory with the module."""

    @staticmethod
    def float_tensors(module: Any, fixed: bool = False) -> Callable[[], Sequence[Tensor]]:
        """A function that lists the float parameters and buffers, in the order of the state.

        Finding where they are kept takes most of the time, so that is done once. The function
        gives those that are there when it is called: also after `place` or a loaded state.

        Args:
            fixed: nothing but `place` puts other tensors into the module. They are the same tuple
                until then, which need not be collected anew.
        """

    @staticmethod
    def pack(module: Any) -> None:
        """Lay the floating parameters and buffers of the state side by side in one memory.

        For `multi_tensor.ema_update_`, which takes two modules packed alike as one tensor each.
        Nothing else shows: the tensors are the same objects, with their values, dtypes, shapes
        and order of dimensions in memory, so an optimizer keeps them; integers stay where they
        are. Copying or placing the module elsewhere undoes it. A backend without a gain by it,
        and a module of several dtypes, may leave all as it is.
        """

    @staticmethod
    def set_trainable(parameters: Iterable[Tensor], trainable: bool) -> None:
        """Whether these parameters require a gradient; one that was there goes when not."""

    @staticmethod
    def synchronize_batch_norm(module: Any) -> None:
        """Make its BatchNorm layers use the statistics of all ranks' images, from now on."""


class Device(inference.Device, Protocol):
    """What the time of a step is measured by."""

    def synchronize(self, device: str) -> None:
        """Return when all work queued on the device has been done."""

    def milliseconds(self, run: Callable[[], object], device: str) -> float:
        """What a call takes until all work that it queued on the device is done.

        On a GPU from the device's own events where the framework has them.
        """

    def host_waits(self, run: Callable[[], object], device: str) -> int | None:
        """How often the host waits for the device during a call; None where that is not told.

        Each wait keeps it from queueing work ahead. A CPU is not waited for.
        """

    def mark(self, device: str) -> Any:
        """A moment: when all work that is queued on the device by now is done.

        Waits for that moment only where the framework has no events of the device.
        """

    def seconds_between(self, start: Any, end: Any) -> float:
        """From one mark to a later one of the same device; waits until the later one is reached."""

    def rounds_to_tf32(self, device: str) -> bool:
        """Whether float32 convolutions on the device may round what they multiply to TF32.

        TF32 keeps 10 of float32's 23 bits after the point: faster, and no longer the same work.
        """


class Fused(Protocol):
    """Fast paths: what a few operations of `ops` compute too, in as few launches as there can be.

    Whatever uses one proves it on its device first, against the plain form:
    `models/proof.py`.
    """

    def complete_iou(self, pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
        """`models/heads/anchor/ciou.py::complete_iou`, its gradient in closed form (gradient).

        That plain form is the one reference; whatever is written for a framework or a device
        computes what follows, in the order that is fastest there. Per axis, with the overlap s of
        that axis and t of the other (0 where the boxes are apart), the hull h, the offset o of the
        centres, the union U, the squared diagonal D of the hull and rho = |o|² / D:

            by_overlap = t * (1 + IoU) / U where the boxes meet, else 0
            by_hull = 2 * h * rho / D
            by centre: (by_hull - by_overlap) / 2 * (high + low) - 2 * o / D
            by size:   (by_hull + by_overlap) / 2 + (by_hull - by_overlap) / 4 * (high - low)

        high and low are the signs of pred's edge minus target's: 0 for equal edges, so that a tie
        counts half for either box. The area and the angle add to the sizes, with alpha constant,
        T = height + eps, angle = 2 / pi * (atan of target's sides - atan of pred's) and
        by_angle = alpha * angle * 4 / pi / (T² + width²):

            by width:  by_angle * T - IoU / U * height
            by height: -by_angle * width - IoU / U * width

        The difference of two arctangents is one: that of the cross over the dot product.

        Args:
            pred: (N, 4) cxcywh, any one unit, float32 or float64, sides not negative.
            target: (N, 4), same format, unit and dtype; a constant: no gradient reaches it.
            eps: added to denominators, above 0.

        Returns:
            (N,); (0,) when N is 0. Half precision, which a framework may know besides the
            promised dtypes, is computed and returned in float32.

        Raises:
            ValueError: other or unequal shapes.
        """

    def implementation(self, device: str) -> str:
        """A few words for the log: what computes `complete_iou` of float32 on a device."""


class Autograd(Protocol):
    """Gradients: the one seam where eager and, later, compiled execution meet."""

    def no_grad(self) -> AbstractContextManager[Any]:
        """A context in which nothing is recorded for a backward pass."""

    def variable(self, array: np.ndarray, device: str = "cpu") -> Tensor:
        """A leaf tensor copied from a float array that requires a gradient."""

    def gradients(self, output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
        """d output / d input for a 0-d output; zeros for an input that it does not depend on.

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
        """terms = loss(model(images), targets), then backward of `terms.total`.

        Gradients add to those already there. Enters the stages "forward", "loss", "backward", and
        waits for none of them: who times a stage does so by `device.mark`.
        """

    def set_gradients(
        self, parameters: Mapping[str, Tensor], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Make copies of the arrays the gradients of the parameters, zeros where one is missing.

        Bit for bit where the dtypes are equal, else cast to the parameter's. What was there goes;
        a backward pass adds to what is here.

        Raises:
            ValueError: a name or shape that is not a parameter's, naming it; none is set then.
        """

    def compile_problem(self, device: str) -> str | None:
        """Why `compiled` does not work on this machine, in a few words; None where it does.

        Tried out once a device by compiling a small function and its gradient.
        """

    def compiled(self, function: Callable[..., Any], most_shapes: int = 1) -> Callable[..., Any]:
        """The function compiled at its first call, and its gradient: equal but for rounding.

        Compiled anew for other shapes of its tensors until there are `most_shapes` of them;
        calls with further shapes run the function as it is. Logs what compiling took.

        Raises:
            ValueError: a backend that has no compiler for it.
        """

    def clip_gradients(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Scale all gradients so that their joint L2 norm is at most max_norm.

        Returns:
            0-d: the norm before; parameters without a gradient count as 0.
        """


class Amp(Protocol):
    """Mixed precision: a network that computes in half precision with float32 weights."""

    def supported(self, device: str) -> tuple[str, ...]:
        """Those of "bfloat16" and "float16" in which `autocast` runs a network on the device."""

    def autocast(self, device: str, dtype: str) -> AbstractContextManager[Any]:
        """A context in which convolutions and matrix products compute in a half precision.

        What needs range stays float32; layers return either dtype, and `ops.cast` to "float32"
        brings a result back. Weights and their gradients keep their dtype. "float32": a context
        that changes nothing. The backward pass needs no context.

        Raises:
            ValueError: a dtype that is not among `supported(device)` nor "float32".
        """

    def scale_gradients_(self, parameters: Iterable[Tensor], factor: float) -> None:
        """Multiply the gradients that are there, in place."""


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
