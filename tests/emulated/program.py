"""A program of this project, or a rank of it, on emulated GPUs: `program.py SCRIPT FLAGS`.

Copies of any size take the way of large ones. The last line of a training counts how often the host
waited for the device, the operations of each step and of each forward pass with its loss and
backward pass, and those still queued when NMS of each batch began: {"steps": [...],
"validations": [...], "operations": [...], "passes": [...], "beside_nms": [...]}.
AT_ONCE=1 takes the lateness away. FINISHES=1 lets the device finish images, operation by operation.
OLDEST=1 takes names away that the oldest PyTorch lacks.

lent_batches in place of a script takes batches in the memory of workers, copied as late as a GPU
may, and prints how often the host waited for copies. Flags: DATA.yaml, and "refused" where the
memory cannot be page-locked.

Without arguments it runs a script for each line of its input, [[SCRIPT, FLAG, ...], {VARIABLE:
VALUE}, MARK], and prints the mark after it.
"""

import json
import os
import runpy
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
from torch import distributed

from duet import backend
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.exit_status import end_process
from tests.emulated.gpu import RUNTIME, emulated_gpu
from tests.emulated.streams import GPU
from tests.frameworks import keep_compiler_out

LENT_BATCHES = "lent_batches"
COUNTED = ("steps", "validations", "operations", "passes", "beside_nms")
counts: dict[str, list[int]] = {name: [] for name in COUNTED}  # of the script that runs


def counting(function: Callable[..., Any], waits: str, operations: str = "") -> Callable[..., Any]:
    """Return a function that also counts how often the host waited in it, and its operations."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        before = GPU.waits, GPU.operations.total()
        result = function(*args, **kwargs)
        if waits:
            counts[waits].append(GPU.waits - before[0])
        if operations:
            counts[operations].append(GPU.operations.total() - before[1])
        return result

    return counted


def replace_parts(stack: ExitStack) -> None:
    """Let Duet's own parts do as on a GPU, and count what they do."""
    from duet.backend.torch import autograd, device, finishing
    from duet.models.heads.found_boxes import BoxHead
    from duet.models.training import loop

    finish_images = BoxHead.finish_images

    def finish(*arguments: Any) -> Any:
        counts["beside_nms"].append(len(GPU.stream().queue))
        return finish_images(*arguments)

    def end_rank(code: int) -> None:
        print_counts()
        end_process(code)

    for owner, name, stand_in in (
        (device, "LARGE_COPY", 0),
        (finishing, "has_triton", lambda: "FINISHES" in os.environ),
        (finishing, "_compiled", lambda: finishing._finished),
        (loop, "train_step", counting(loop.train_step, "steps", "operations")),
        (loop.Evaluation, "run", counting(loop.Evaluation.run, "validations")),
        (autograd, "value_and_backward", counting(autograd.value_and_backward, "", "passes")),
        (BoxHead, "finish_images", finish),
    ):
        stack.enter_context(mock.patch.object(owner, name, stand_in))
    stack.enter_context(mock.patch("duet.utils.processes.command.end_process", end_rank))


def run_script(words: list[str]) -> None:
    GPU.at_once = "AT_ONCE" in os.environ
    for found in counts.values():
        found.clear()
    if words[0] == LENT_BATCHES:
        return lend_batches(*words[1:])
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    print_counts()


def lend_batches(data: str, locking: str = "") -> None:
    register = refuse if locking else RUNTIME.cudaHostRegister
    samples = load_split(load_dataset(data), "train")
    with (
        mock.patch.object(RUNTIME, "cudaHostRegister", register),
        TrainLoader(samples, TrainRecipe(64, 2), workers=2) as loader,
    ):
        expected = [batch.images for batch in loader.epoch(0, is_last=True)]
        loader.lend_to("cuda:0")
        found, in_place, waits = [], [], GPU.waits
        for batch in loader.epoch(0, is_last=True):
            for piece in batch.pieces(1):  # images, as with --micro-batch
                in_place.append(backend.device.is_page_locked(piece.images))
                found.append(backend.ops.tensor(piece.images, "cuda:0"))
        waits = GPU.waits - waits
    assert {*in_place} == {not locking}
    arrays = [backend.ops.to_numpy(copied) for copied in found]
    np.testing.assert_array_equal(np.concatenate(arrays), np.concatenate(expected))
    print(waits)


def refuse(*memory: int) -> int:
    return 801  # cudaErrorNotSupported


def print_counts() -> None:
    if counts["steps"]:
        sys.stdout.flush()  # one write, which another rank's cannot enter
        os.write(sys.stdout.fileno(), f"{json.dumps(counts)}\n".encode())


def serve() -> None:
    for line in sys.stdin:
        words, environment, mark = json.loads(line)
        with mock.patch.dict(os.environ, environment):
            run_script(words)
        print(mark, flush=True)


def main() -> None:
    with emulated_gpu(), ExitStack() as stack:
        backend.use("torch")
        if "OLDEST" in os.environ:
            del distributed.all_gather_single
        replace_parts(stack)
        words = sys.argv[1:]
        run_script(words) if words else serve()


if __name__ == "__main__":
    keep_compiler_out()
    main()
