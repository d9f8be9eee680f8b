"""How a training step is run, chosen once: precision, memory layout, compiled or not, threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import backend
from backend import amp, autograd, cores, dist, fused, use
from backend.checks import CPU
from backend.contract import Tensor
from models.blocks.registry import count_gflops
from models.detector import choose_layout
from models.graph import ModelSpec, plan_layers
from models.heads.base import Loss, LossTerms
from models.training.fast import graph_problem
from utils.cli.train_config import TrainConfig
from utils.errors import UserError
from utils.processes.ranks import on_main

HALF_PRECISIONS = {"bf16": "bfloat16", "fp16": "float16"}
# Of the forward pass of a step. The loops of a small step are shorter than it takes to wake threads
# and wait for them; docs/en/performance.md has what was measured.
GFLOPS_OF_A_THREAD = 0.5

log = logging.getLogger("train")


@dataclass(frozen=True)
class Execution:
    """The choices of --amp, --layout and --compile that this backend and device can honour."""

    device: str
    dtype: str  # in which the network computes; weights and loss are float32 beside halves
    channels_last: bool
    compiled: bool
    graphs: bool = False  # whether what is compiled runs as CUDA graphs

    @property
    def autocast_dtype(self) -> str:
        """For `amp.autocast`: a half precision, or "float32", which changes nothing."""
        return self.dtype if self.dtype in HALF_PRECISIONS.values() else "float32"

    @property
    def layout(self) -> str:
        """Of feature maps in memory, in words."""
        return "channels-last" if self.channels_last else "contiguous"

    def forward_of(self, model: Any) -> Callable[[Tensor], Sequence[Tensor]]:
        """Return the forward pass of what `dist.data_parallel` returned: images to raw maps.

        Raw maps have the dtype in which the network computes; a loss takes them so.
        """
        forward = self._compile(model) if self.compiled else model
        if self.autocast_dtype == "float32":
            return forward

        def in_half_precision(images: Tensor) -> Sequence[Tensor]:
            # A compiler casts in the kernels that need it.
            together = "float32" if self.compiled else self.dtype
            with amp.autocast(self.device, self.dtype), amp.cast_together(model, together):
                return forward(images)

        return in_half_precision

    def loss_of(self, loss: Loss) -> Callable[..., LossTerms]:
        """Return the loss itself or its compiled form."""
        return loss.compiled(self._compile) if self.compiled else loss

    def _compile(self, function: Callable[..., Any], most_shapes: int = 1) -> Callable[..., Any]:
        # Any look-up: a compiler cannot trace the first one, and would split the model there.
        _ = fused.complete_iou
        return autograd.compiled(function, most_shapes, self.graphs)


def choose_execution(config: TrainConfig, device: str, dtype: str) -> Execution:
    """Decide what the flags mean here, and say it in one log line.

    Args:
        dtype: of the weights.

    Raises:
        UserError: a precision or layout that the backend does not have on this device.
    """
    computed = choose_precision(config.amp, device, dtype)
    if config.amp == "off":
        backend.device.compute_exactly(device)
    channels_last = choose_layout(config.layout, device, computed)
    problem = autograd.compile_problem(device) if config.compile else None
    is_compiled = config.compile and problem is None
    without_graphs = graph_problem(config, device) if is_compiled else ""
    graphs = is_compiled and not without_graphs
    execution = Execution(device, computed, channels_last, is_compiled, graphs)
    log.info(
        "%s, %s, %s%s%s",
        describe_precision(computed, device, chosen=config.amp == "auto" and computed != dtype),
        execution.layout,
        "compiled, as CUDA graphs" if graphs else "compiled" if is_compiled else "eager",
        f" (no --compile: {problem})" if problem else "",
        f" (no CUDA graphs: {without_graphs})" if without_graphs and device != CPU else "",
    )
    return execution


def describe_precision(computed: str, device: str, chosen: bool) -> str:
    """Return a precision in words: whether --amp auto chose it, and how a GPU rounds float32."""
    if chosen:
        return f"{computed} (--amp auto; --amp off computes in float32)"
    if computed != "float32" or device == CPU:
        return computed
    if backend.device.rounds_to_tf32(device):
        return "float32 (convolutions round to TF32; NVIDIA_TF32_OVERRIDE=0 keeps them from it)"
    return "float32 (exact)"


def choose_precision(asked: str, device: str, dtype: str) -> str:
    """Return the dtype in which the network computes, as --amp says: the same on all ranks."""
    if asked == "auto" and dtype == "float32":
        return preferred_by_all(device)
    if asked in ("auto", "off"):
        return dtype
    half = HALF_PRECISIONS[asked]
    supported = [name for name, found in HALF_PRECISIONS.items() if found in amp.supported(device)]
    if half not in amp.supported(device):
        raise UserError(
            f"--amp {asked}: the {use()} backend cannot train in {half} on {device}; accepted "
            f"there: {', '.join(['auto', 'off', *supported])}"
        )
    if half == "float16" and device == CPU:
        log.warning("--amp fp16: CPUs without its kernels run it slower than float32; try bf16")
    return half


def preferred_by_all(device: str) -> str:
    """Return the precision that the devices of all ranks gain from: that of the weakest."""
    weakest_first = ("float32", *reversed(HALF_PRECISIONS.values()))
    mine = np.array([weakest_first.index(amp.preferred(device))])
    return weakest_first[int(np.concatenate(dist.all_gather(mine)).min())]


def choose_step_threads(config: TrainConfig, spec: ModelSpec, device: str, ranks: int) -> None:
    """Give this process fewer threads than cores if its steps on a CPU are small, and log it.

    The number follows from settings and cores alone, so a run that resumes on its machine has it
    again, and with it the same sums.

    ranks: that share a batch.
    """
    most = backend.device.host_threads()
    if device != CPU or cores.are_asked_for():
        return
    images = -(-config.batch_size // ranks)
    images = min(images, config.micro_batch or images)
    gflops = images * count_gflops(plan_layers(spec), config.image_size)
    threads = max(1, min(most, int(gflops / GFLOPS_OF_A_THREAD)))
    if threads < most:
        backend.device.set_host_threads(threads)
        on_main(log.info)(
            "threads: %d of %d, because a step of %.2g GFLOPs gains from no more; OMP_NUM_THREADS "
            "sets another number", threads, most, gflops,
        )  # fmt: skip
