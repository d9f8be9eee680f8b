"""The one tensor API: what every backend promises, name by name.

Everything above `backend/` is written against these signatures alone. Each class below is one
module of a backend (`class Ops` is `backend/NAME/ops.py`), each method one function or class
of that module, with the same parameter names. This file imports no framework.

`python -m backend.contract NAME` lists what backend NAME lacks; `tests/conformance` judges what
each name computes, against NumPy.

Conventions
    Tensors are the framework's own; there is no wrapper. Of a tensor's methods only those of
    `Tensor` are promised. Arithmetic is promised between float tensors of one dtype, and
    between a float tensor and a Python number; integers are compared and used as indices, and
    computed in NumPy before they become tensors.
    dtypes are named by strings: "float32", "float64", "int64", "uint8", "bool".
    Devices are named by strings: "cpu", "cuda:0".
    An error that the framework would raise late, or by ending the process, is a ValueError here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np

Shape = Sequence[int]
Loss = TypeVar("Loss")


class Tensor(Protocol):
    """The methods and operators of a framework tensor that Duet's code may use."""

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
    def __pow__(self, exponent: float) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __lt__(self, other: Tensor | float) -> Tensor: ...
    def __le__(self, other: Tensor | float) -> Tensor: ...
    def __gt__(self, other: Tensor | float) -> Tensor: ...
    def __ge__(self, other: Tensor | float) -> Tensor: ...
    def __getitem__(self, index: Any) -> Tensor:
        """Integers, slices and `...` only: a view or a copy. Rows by tensor: `ops.take_rows`."""

    def reshape(self, *shape: int) -> Tensor:
        """At least one size; -1 for the one that follows from the others."""

    def permute(self, *dims: int) -> Tensor: ...
    def detach(self) -> Tensor: ...


class Ops(Protocol):
    """Functions of tensors. Those marked (gradient) are differentiable in their float inputs."""

    # NumPy boundary, dtype and device
    def tensor(self, array: np.ndarray, device: str = "cpu") -> Tensor:
        """A copy of a NumPy array of a promised dtype, same shape and dtype.

        Raises:
            ValueError: a dtype outside the promised ones, a device that is not there.
        """

    def to_numpy(self, x: Tensor) -> np.ndarray:
        """A copy, in host memory, detached, complete when the call returns."""

    def dtype_of(self, x: Tensor) -> str:
        """The name of the dtype, "float32" for instance."""

    def device_of(self, x: Tensor) -> str:
        """The name of the device, "cpu" or "cuda:0"."""

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Same values in another dtype, truncated towards zero from float to int (gradient)."""

    def move(self, x: Tensor, device: str) -> Tensor:
        """The same tensor on another device (gradient)."""

    def normalize_images(self, images: Tensor, dtype: str, channels_last: bool = False) -> Tensor:
        """(B, C, H, W) uint8 -> the same shape and order in a float dtype, divided by 255.

        channels_last: the channels of a pixel lie side by side in memory, in the result and in
        what layers make of it; values differ from the other layout's by rounding alone.

        Raises:
            ValueError: another dtype or number of dimensions; channels_last on a backend that
                does not support it.
        """

    # Creation
    def zeros(self, shape: Shape, dtype: str = "float32", device: str = "cpu") -> Tensor: ...
    def full(
        self, shape: Shape, value: float, dtype: str = "float32", device: str = "cpu"
    ) -> Tensor: ...

    # Element by element, float in, same dtype out (gradient)
    def exp(self, x: Tensor) -> Tensor: ...
    def log(self, x: Tensor) -> Tensor: ...
    def sqrt(self, x: Tensor) -> Tensor: ...
    def atan(self, x: Tensor) -> Tensor: ...
    def absolute(self, x: Tensor) -> Tensor: ...
    def floor(self, x: Tensor) -> Tensor: ...
    def sigmoid(self, x: Tensor) -> Tensor: ...
    def silu(self, x: Tensor) -> Tensor:
        """x · sigmoid(x)."""

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

    # bool in, bool out
    def isfinite(self, x: Tensor) -> Tensor:
        """bool: neither infinite nor NaN."""

    def logical_and(self, x: Tensor, y: Tensor) -> Tensor: ...
    def logical_or(self, x: Tensor, y: Tensor) -> Tensor: ...
    def logical_not(self, x: Tensor) -> Tensor: ...

    # Reductions (gradient). dim None reduces to 0-d.
    def sum(self, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Sum, 0 of an empty float tensor."""

    def mean(self, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Mean, NaN where there is nothing to average."""

    def amax(self, x: Tensor, dim: int) -> Tensor:
        """Largest value along dim; ValueError when that dimension is empty."""

    # Shape and index (gradient)
    def cat(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Joined along an existing dimension; ValueError for no tensors or unequal dtypes."""

    def stack(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Joined along a new dimension; ValueError for no tensors or unequal dtypes."""

    def take_rows(self, x: Tensor, index: Tensor) -> Tensor:
        """x[index] along dimension 0, index (K,) int64; ValueError outside 0 to len(x) - 1.

        The range is checked on a CPU only, where it costs little.
        """

    def put_rows(self, x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        """A copy of x with x[index] = values along dimension 0.

        index (K,) int64 without repeats, values (K, ...) of x's dtype and row shape.

        Raises:
            ValueError: values of another shape or dtype; an index that `take_rows` refuses.
        """

    # Network and loss (gradient)
    def upsample_nearest_2x(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C, 2H, 2W), each value four times."""

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

    # Detection
    def take_where(self, x: Tensor, condition: Tensor) -> Tensor:
        """x[condition], (K, ...): the rows of x at which the condition holds, in their order.

        What is not taken is not copied on a CPU, however x is permuted.

        Args:
            condition: bool, of one or more of the first dimensions of x.

        Raises:
            ValueError: another shape or dtype of the condition.
        """

    def suppress(
        self, boxes_xyxy: Tensor, group: Tensor, iou_threshold: float, max_kept: int
    ) -> Tensor:
        """Rows that remain when each kept box removes the later ones of its group it overlaps.

        Args:
            boxes_xyxy: (N, 4) float32, finite, best first, left <= right and top <= bottom.
            group: (N,) int64, on the same device; boxes of different groups never meet.
            iou_threshold: a box goes when its IoU with a kept one is above this, rounded to
                float32. IoU is computed in float64; boxes that only touch or lack area have 0.
            max_kept: the search ends when this many are kept.

        Returns:
            (K,) int64, ascending, on the device of the boxes; the same on every device.

        Raises:
            ValueError: another shape or dtype, a threshold outside [0, 1], max_kept below 1.
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
        """Sub-modules called one after the other."""

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
        """(B, in, H, W) -> (B, out, H', W'); weight (out, in / groups, k, k), x of its dtype."""

    @staticmethod
    def BatchNorm2d(num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> Any:
        """Batch statistics in training (running variance unbiased), running ones in evaluation.

        eps and momentum are rounded to float32, also for float64 tensors.
        """

    @staticmethod
    def MaxPool2d(kernel_size: int, stride: int, padding: int = 0) -> Any:
        """Largest value of each window; padding counts as minus infinity."""

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
    def state_arrays(module: Any) -> dict[str, np.ndarray]:
        """Copies of parameters and buffers by dotted name, in the public order."""

    @staticmethod
    def load_state_arrays(module: Any, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy arrays into the module, cast to its dtypes; requires_grad stays as it was.

        Raises:
            ValueError: names or shapes that do not match, naming them; nothing is loaded then.
        """

    @staticmethod
    def register_buffer(module: Any, name: str, array: np.ndarray) -> None:
        """Make a NumPy array a buffer of the module: saved and moved with it, not trained."""

    @staticmethod
    def place(module: Any, device: str, dtype: str) -> Any:
        """Move the module to a device, its floating tensors to a dtype; returns the module."""

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

    @staticmethod
    def frozen_copy(module: Any) -> Any:
        """An independent copy in evaluation mode of which nothing requires a gradient."""


class Optimizer(Protocol):
    """One optimizer over parameter groups; see `Optim`."""

    def step(self, learning_rates: Sequence[float], momentum: float) -> None:
        """One update with a learning rate per group, from the gradients that are there.

        A parameter whose gradient is None is left alone. Rates, momentum and decay are rounded
        to float32, also for float64 parameters.

        Raises:
            ValueError: another number of learning rates than of groups.
        """

    def zero_grad(self) -> None:
        """Set the gradients that are there to zero."""

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Copies of the state by name; what the first step makes is absent before it.

        `PARAMETER.momentum` of SGD; `PARAMETER.first_moment`, `PARAMETER.second_moment` and
        `updates`, 0-d int64, of Adam and AdamW.
        """

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore `state_arrays()`; ValueError for a name or shape that does not fit."""


class Optim(Protocol):
    """Optimizers. A group is (parameters by name, weight decay)."""

    def SGD(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """SGD with Nesterov momentum and L2 weight decay.

        g = grad + decay * w;  v = g at the first step, then momentum * v + g;
        w -= lr * (g + momentum * v). With momentum 0: w -= lr * g, v stays as it is.
        """

    def Adam(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Adam with L2 weight decay; its beta1 is the momentum of the step, beta2 is 0.999.

        g = grad + decay * w;  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g²;
        w -= rate * m / (sqrt(v) + eps). At step t, counted from 1 for all parameters alike,
        rate = lr * sqrt(1 - beta2**t) / (1 - beta1**t) and eps = 1e-8 * sqrt(1 - beta2**t): the
        corrections of the bias, folded in. beta2, 1e-8, rate and eps are rounded to float32 too.

        `step` raises ValueError for a momentum outside [0, 1).
        Source: Kingma & Ba 2015, arXiv:1412.6980.
        """

    def AdamW(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Adam with decoupled weight decay: g = grad, and w *= 1 - lr * decay before its update.

        Source: Loshchilov & Hutter 2019, arXiv:1711.05101.
        """


class Fused(Protocol):
    """Fast paths: what a few operations of `ops` compute too, in as few launches as there can be.

    Whatever uses one proves it on its device first, against the plain form:
    `models/proof.py`.
    """

    def complete_iou(self, pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
        """`models/heads/anchor/ciou.py`: the same value, the gradient in closed form (gradient).

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


class MultiTensor(Protocol):
    """The updates of `Optim` and `Ops` for many tensors together: in few launches on a GPU.

    The same promises and the same state; the values agree to rounding.
    """

    def SGD(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """As `Optim.SGD`."""

    def Adam(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """As `Optim.Adam`."""

    def AdamW(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """As `Optim.AdamW`."""

    def ema_update_(
        self, averages: Sequence[Tensor], values: Sequence[Tensor], decay: float
    ) -> None:
        """As `Ops.ema_update_`.

        Moving the memory of a tensor that was given before (`tensor.data = ...`) is for
        `nn.place` and `nn.pack` alone.
        """

    def describe(self, optimizer: str, device: str) -> str:
        """One line for the log: what updates weights and averages on a device."""


class Stage(Protocol):
    """Times a named part of the step: `with stage("forward"): ...`."""

    def __call__(self, name: str) -> AbstractContextManager[Any]: ...


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


class Dist(Protocol):
    """Several processes that train together; `backend.processes` says which one this is.

    Every rank calls the same functions in the same order. With one process they change nothing.
    """

    def start(self, device: str, timeout_s: float) -> None:
        """Join the other processes; comes before the other functions.

        Args:
            device: of this process's tensors, as `Device.resolve` returns it.
            timeout_s: after which waiting for another rank is an error, where the framework has
                such a limit.

        Raises:
            BackendError: a device whose tensors the framework cannot exchange.
        """

    def stop(self) -> None:
        """Wait until all have done what they began, and leave them.

        What follows is the end of the process, by `os._exit`: PyTorch 2.13 was seen to abort in
        one of 20 ordinary exits of a rank. Rank 0 must end last, which `watchdog.leave` sees to:
        OneFlow's other ranks abort when it goes before they have heard that all are here.
        """

    def sum_(self, x: Tensor) -> None:
        """x = the sum of the ranks' x, in place; no gradient."""

    def broadcast_(self, x: Tensor) -> None:
        """x = that of rank 0, in place; no gradient."""

    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        """The array (N, ...) of each rank, in their order; only N may differ.

        Raises:
            ValueError: a 0-d array, or none of float32, float64, int64 and uint8.
        """

    def data_parallel(self, module: Any, half_gradients: bool = False) -> Any:
        """The module for training on several ranks: called as the module, with its parameters.

        Gradients add up from backward pass to backward pass; `averaging` says after which one
        they become the mean over the ranks.

        Args:
            half_gradients: send them as bfloat16, half the bytes.

        Raises:
            ValueError: half_gradients where `Device.supports("half_gradients")` is False.
        """

    def averaging(
        self, module: Any, last: bool, stage: Stage | None = None
    ) -> AbstractContextManager[Any]:
        """A context around a forward and backward pass of what `data_parallel` returned.

        When it is left after the last of the accumulated passes, the gradients are averaged.
        PyTorch exchanges them while the backward pass goes on, OneFlow after it, which counts in
        the stage "backward" too.
        """


class Device(Protocol):
    """The devices that this process can use."""

    def resolve(self, name: str) -> str:
        """What the user wrote: "cpu"; "0" or "cuda:0"; "" for the first GPU, else the CPU.

        Of several processes on a machine each takes the GPU at the place of its local rank, from
        a list such as "0,1" or, for "", from all that are there.

        Raises:
            BackendError: a device that is not there, naming those that are; more processes than
                devices; a list for one process.
        """

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

    def describe(self, device: str) -> str:
        """One line for the log: framework version and device."""

    def rounds_to_tf32(self, device: str) -> bool:
        """Whether float32 convolutions on the device may round what they multiply to TF32.

        TF32 keeps 10 of float32's 23 bits after the point: faster, and no longer the same work.
        """

    def supports(self, capability: str) -> bool:
        """Whether a capability of `CAPABILITIES` is there; ValueError for any other name."""


CAPABILITIES: dict[str, str] = {
    "cuda": "training and validation on a CUDA device that this process can see",
    "half_gradients": "gradients sent from process to process as bfloat16",
    "channels_last": "feature maps with the channels of a pixel side by side in memory",
}

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


def main(arguments: Sequence[str]) -> int:
    """`python -m backend.contract NAME`: 0 complete, 1 incomplete, 2 not a usable backend."""
    # Imported here: `completeness` imports this module.
    from backend import completeness, select

    if len(arguments) != 1:
        sys.stderr.write(f"usage: python -m backend.contract {'|'.join(select.FRAMEWORKS)}\n")
        return 2
    try:
        lines = completeness.missing(arguments[0])
    except select.BackendError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
