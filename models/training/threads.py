"""How many threads a training step on a CPU has by default: as many as its work can use.

Before: `job.py` built the model. After: `state.py::build_state`. The loops of a small step are
shorter than it takes to wake threads and wait for them. docs/en/performance.md has what was
measured. The number follows only from settings and cores, so a run that resumes on its machine
has it again, and with it the same sums.
"""

from __future__ import annotations

import logging

import backend
from backend import openmp
from backend.checks import CPU
from models.graph import ModelSpec, plan_layers
from models.operations import count_gflops
from utils.cli.train_config import TrainConfig
from utils.processes.ranks import on_main

GFLOPS_OF_A_THREAD = 0.5  # of the forward pass of a step

log = logging.getLogger("train")


def choose_step_threads(config: TrainConfig, spec: ModelSpec, device: str, ranks: int) -> None:
    """Give this process fewer threads than cores if its steps are small; say so.

    Args:
        config: image size and batch.
        spec: of the model.
        device: nothing changes for one that is not the CPU.
        ranks: that share a batch.
    """
    most = backend.device.host_threads()
    if device != CPU or openmp.are_asked_for():
        return
    images = -(-config.batch_size // ranks)
    images = min(images, config.micro_batch or images)
    gflops = images * count_gflops(plan_layers(spec), config.image_size)
    threads = fitting_threads(gflops, most)
    if threads < most:
        backend.device.set_host_threads(threads)
        _tell(threads, most, gflops)


def fitting_threads(gflops: float, most: int) -> int:
    """Return a thread for each `GFLOPS_OF_A_THREAD`, at least one and at most `most`."""
    return max(1, min(most, int(gflops / GFLOPS_OF_A_THREAD)))


@on_main
def _tell(threads: int, most: int, gflops: float) -> None:
    log.info(
        "threads: %d of %d, because a step of %.2g GFLOPs gains from no more; OMP_NUM_THREADS "
        "sets another number", threads, most, gflops,
    )  # fmt: skip
