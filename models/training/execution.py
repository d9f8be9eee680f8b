"""Execution of training steps: precision, memory layout, compilation and threads."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

import numpy as np

from duet import backend
from duet.backend import amp, autograd, cores, dist, fused, nn, ops, use
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.backend.processes import this_process
from duet.models.detector import gains_from_channels_last
from duet.models.heads.base import Loss, LossTerms
from duet.utils.errors import UserError
from duet.utils.processes.ranks import on_main

HALF_PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", "bf16-always": "bfloat16"}
# Forward-pass GFLOPs per thread. The loops of a small step take less time than waking threads and
# waiting for them.
GFLOPS_OF_A_THREAD = 0.5
SECONDS, WARM_UP = 0.3, 1  # of comparing bfloat16 with float32, and its rounds that do not count
MOST_PRODUCTS = 5e7  # multiply-adds of a convolution then: a few milliseconds on a core

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("train")


@dataclass(frozen=True)
class Execution:
    """The choices for --amp, --layout and --compile supported by this backend and device."""

    device: str
    dtype: str  # compute dtype of the network; with half precision, weights and loss are float32
    channels_last: bool
    compiled: bool
    graphs: bool = False  # whether compiled functions run as CUDA graphs
    described: str = ""  # all of this for the log, and why it is not what was asked for

    @property
    def autocast_dtype(self) -> str:
        """Dtype for `amp.autocast`; "float32" disables it."""
        return self.dtype if self.dtype in HALF_PRECISIONS.values() else "float32"

    @property
    def layout(self) -> str:
        return "channels-last" if self.channels_last else "contiguous"

    def forward_of(self, model: nn.Module) -> Callable[[Tensor], Sequence[Tensor]]:
        """Return the forward pass of a `dist.data_parallel` module: images to raw maps.

        Raw maps have the network's compute dtype, which losses accept.
        """
        forward = self._compile(model) if self.compiled else model
        if self.autocast_dtype == "float32":
            return forward

        def in_half_precision(images: Tensor) -> Sequence[Tensor]:
            # The compiler casts inside its kernels.
            together = "float32" if self.compiled else self.dtype
            with amp.autocast(self.device, self.dtype), amp.cast_together(model, together):
                return forward(images)

        return in_half_precision

    def loss_of(self, loss: Loss) -> Callable[..., LossTerms]:
        return loss.compiled(self._compile) if self.compiled else loss

    def _compile(self, function: Callable[P, R], most_shapes: int = 1) -> Callable[P, R]:
        # Do one look-up first: compilers cannot trace it, and it would break the graph.
        _ = fused.complete_iou
        return autograd.compiled(function, most_shapes, self.graphs)


def choose_execution(
    device: str,
    dtype: str,
    precision: str,
    layout: str,
    compiles: bool,
    drops: bool,
) -> Execution:
    """Resolve --amp, --layout and --compile for this backend and device.

    Args:
        dtype: dtype of the weights.
        drops: whether the model has dropout.

    Raises:
        UserError: the backend does not support a precision or layout on this device.
    """
    computed = choose_precision(precision, device, dtype)
    if precision == "off":
        backend.device.compute_exactly(device)
    channels_last = choose_layout(layout, device, computed)
    problem = autograd.compile_problem(device) if compiles else None
    is_compiled = compiles and problem is None
    without_graphs = graph_problem(device, drops) if is_compiled else ""
    graphs = is_compiled and not without_graphs
    chosen = precision == "auto" and computed != dtype
    how = "compiled, as CUDA graphs" if graphs else "compiled" if is_compiled else "eager"
    reason = f" (no --compile: {problem})" if problem else ""
    if without_graphs and device != CPU:
        reason += f" (no CUDA graphs: {without_graphs})"
    execution = Execution(device, computed, channels_last, is_compiled, graphs)
    words = describe_precision(computed, device, chosen), execution.layout, how + reason
    return replace(execution, described=", ".join(words))


def describe_precision(computed: str, device: str, chosen: bool) -> str:
    """Describe a precision: whether --amp auto chose it, and how a GPU rounds float32."""
    if chosen:
        return f"{computed} (--amp auto; use --amp off for float32)"
    if computed != "float32" or device == CPU:
        return computed
    if backend.device.rounds_to_tf32(device):
        return "float32 (convolutions use TF32; set NVIDIA_TF32_OVERRIDE=0 to disable it)"
    return "float32 (exact)"


def choose_precision(asked: str, device: str, dtype: str) -> str:
    """Return the compute dtype for --amp, the same on all ranks."""
    if asked == "auto" and dtype == "float32":
        return preferred_by_all(device)
    if asked in ("auto", "off"):
        return dtype
    half = HALF_PRECISIONS[asked]
    supported = [name for name, found in HALF_PRECISIONS.items() if found in amp.supported(device)]
    if asked not in supported:
        raise UserError(
            f"--amp {asked}: the {use()} backend cannot train in {half} on {device}; accepted: "
            f"{', '.join(['auto', 'off', *supported])}"
        )
    if half == "float16" and device == CPU:
        log.warning("--amp fp16: slower than float32 on CPUs without fp16 kernels; try bf16")
    return half


def preferred_by_all(device: str) -> str:
    weakest_first = ("float32", "float16", "bfloat16")
    mine = np.array([weakest_first.index(amp.preferred(device))], np.int64)
    return weakest_first[int(np.concatenate(dist.all_gather(mine)).min())]


def choose_layout(asked: str, device: str, dtype: str) -> bool:
    """Return whether to use channels-last; UserError if --layout is not supported.

    dtype: compute dtype of the network.
    """
    if asked == "auto":
        return gains_from_channels_last(device, dtype)
    if asked == "channels-last" and not backend.device.supports("channels_last"):
        raise UserError(
            f"--layout channels-last: not supported by the {use()} backend; use --layout auto, or "
            "--backend torch"
        )
    return asked == "channels-last"


@contextmanager
def restoring_threads() -> Iterator[None]:
    """Restore the number of threads after the block, for a program that calls `duet.train`."""
    before = backend.device.host_threads()
    try:
        yield
    finally:
        if backend.device.host_threads() != before:
            backend.device.set_host_threads(before)


def choose_step_threads(gflops: float, device: str) -> None:
    """Use fewer threads than cores for small steps on a CPU, and log the number.

    The number depends only on the GFLOPs of a forward pass and the cores, so a run resumed on the
    same machine uses the same number and gets the same sums.
    """
    most = backend.device.host_threads()
    if device != CPU or cores.are_asked_for():
        return
    threads = max(1, min(most, int(gflops / GFLOPS_OF_A_THREAD)))
    if threads < most:
        backend.device.set_host_threads(threads)
        on_main(log.info)(
            "threads: using %d of %d: more do not speed up a step of %.2g GFLOPs; set "
            "OMP_NUM_THREADS to override", threads, most, gflops,
        )  # fmt: skip


def graph_problem(device: str, drops: bool) -> str:
    """Return why a compiled step cannot run as CUDA graphs; "" if it can.

    Graphs replace a launch per kernel with a few launches per pass.
    """
    if not device.startswith("cuda"):
        return "not on a GPU of CUDA"
    if this_process().world_size > 1:
        return "several processes exchange gradients during a pass"
    if drops:  # the compiler assumes that a module's tensors are fixed like weights
        return "--dropout draws a new tensor for each pass"
    return ""


def bfloat16_ratio(channels: int, cells: int) -> float:
    """Return the time of 3x3 convolutions in bfloat16, forward and backward, in that of float32.

    A larger map than `MOST_PRODUCTS` allows is cut: its rows are computed alike.
    """
    cells = max(1, min(cells, int(math.sqrt(MOST_PRODUCTS / 9) / channels)))
    random = np.random.Generator(np.random.Philox(0))
    images = ops.tensor(random.random((1, channels, cells, cells), np.float32))
    if backend.device.supports("channels_last"):
        images = ops.channels_last(images)
    runs = {dtype: _convolutions(images, channels, dtype) for dtype in ("float32", "bfloat16")}
    spent: dict[str, list[float]] = {dtype: [] for dtype in runs}
    begin, rounds = time.perf_counter(), 0
    while rounds <= WARM_UP or time.perf_counter() - begin < SECONDS:
        for dtype, run in runs.items():
            start = time.perf_counter()
            run()
            spent[dtype].append(time.perf_counter() - start)
        rounds += 1
    fastest = {dtype: min(times[WARM_UP:]) for dtype, times in spent.items()}
    return fastest["bfloat16"] / fastest["float32"]


def _convolutions(images: Tensor, channels: int, dtype: str) -> Callable[[], object]:
    """Return a step of two layers between others: their maps are in the dtype."""
    first, second, third = (nn.Conv2d(channels, channels, 3, 1, 1, bias=False) for _ in range(3))
    with amp.autocast(CPU, dtype):
        inner = first(images).detach()

    def run() -> object:
        with amp.autocast(CPU, dtype):
            total = ops.sum(ops.cast(third(second(inner)), "float32"))
        return autograd.gradients(total, [second.weight, third.weight])

    return run
