"""A program of this project on emulated GPUs: `program.py SCRIPT FLAGS`, with --device 0 or 0,1.

`--then SCRIPT FLAGS` runs another one after it.
Copies of any size take the way of large ones. The last line of a training counts how often the host
waited for the device, the operations of each step and of each forward pass with its loss and
backward pass, and those still queued when NMS of each batch began: {"steps": [...],
"validations": [...], "operations": [...], "passes": [...], "beside_nms": [...]}.
AT_ONCE=1 takes the lateness away. FINISHES=1 lets the device finish images, operation by operation.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

from duet import backend
from duet.backend.processes import this_process
from duet.utils.processes.exit_status import end_process
from duet.utils.processes.launch import run_ranks
from tests.emulated.gpu import emulated_gpu
from tests.emulated.streams import GPU

# PyTorch keeps its compiler out of what is called here, and would import it for that: a second.
NO_COMPILER = SimpleNamespace(
    disable=lambda function, *_, **__: function, mark_dynamic=lambda x, dimension: None
)


def counting(
    function: Callable[..., Any], waits: list[int], operations: list[int]
) -> Callable[..., Any]:
    """Return a function that also notes how often the host waited in it, and its operations."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        before = GPU.waits, GPU.operations.total()
        result = function(*args, **kwargs)
        waits.append(GPU.waits - before[0])
        operations.append(GPU.operations.total() - before[1])
        return result

    return counted


def run_emulated_ranks(command: Sequence[str], *others: Any) -> int:
    """Start ranks of this program in place of those of the script."""
    python, unbuffered, *script = command
    return run_ranks([python, unbuffered, "-m", "tests.emulated.program", *script], *others)


def main() -> None:
    if this_process().world_size == 1:  # ranks together use parts of it
        sys.modules["torch._dynamo"] = NO_COMPILER  # type: ignore[assignment]
    with emulated_gpu(at_once="AT_ONCE" in os.environ):
        backend.use("torch")
        from duet.backend.torch import autograd, device, finishing
        from duet.models.heads.found_boxes import BoxHead
        from duet.models.training import loop

        device.LARGE_COPY = 0
        if "FINISHES" in os.environ:
            finishing.has_triton = lambda: True
            finishing._compiled = lambda: finishing._finished
        waits: dict[str, list[int]] = {
            "steps": [], "validations": [], "operations": [], "passes": [], "beside_nms": [],
        }  # fmt: skip
        loop.train_step = counting(loop.train_step, waits["steps"], waits["operations"])
        loop.Evaluation.run = counting(loop.Evaluation.run, waits["validations"], [])
        autograd.value_and_backward = counting(autograd.value_and_backward, [], waits["passes"])

        finish_images = BoxHead.finish_images

        def finish(*arguments: Any) -> Any:
            waits["beside_nms"].append(len(GPU.stream().queue))
            return finish_images(*arguments)

        BoxHead.finish_images = finish

        def end_rank(code: int) -> None:
            print_counts(waits)
            end_process(code)

        with (
            mock.patch("duet.utils.processes.launch.run_ranks", run_emulated_ranks),
            mock.patch("duet.utils.processes.command.end_process", end_rank),
        ):
            for line in "\n".join(sys.argv).split("\n--then\n"):
                sys.argv = line.split("\n")
                runpy.run_path(sys.argv[0], run_name="__main__")
    print_counts(waits)


def print_counts(waits: dict[str, list[int]]) -> None:
    if waits["steps"]:
        print(json.dumps(waits), flush=True)


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    main()
