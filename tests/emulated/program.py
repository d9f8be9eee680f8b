"""A program of this project on an emulated GPU: `program.py SCRIPT FLAGS`, with --device 0.

Copies of any size take the way of large ones. The last line of a training counts how often the host
waited for the device: {"steps": [...], "validations": [...]}. AT_ONCE=1 takes the lateness away.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

import backend
from tests.emulated.gpu import emulated_gpu
from tests.emulated.streams import GPU


def counting(function: Callable[..., Any], counts: list[int]) -> Callable[..., Any]:
    """Return a function that also notes how often the host waited in it."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        before = GPU.waits
        result = function(*args, **kwargs)
        counts.append(GPU.waits - before)
        return result

    return counted


def main() -> None:
    with emulated_gpu(at_once="AT_ONCE" in os.environ):
        backend.use("torch")
        from backend.torch import ops
        from models.training import loop

        ops.LARGE_COPY = 0
        waits: dict[str, list[int]] = {"steps": [], "validations": []}
        loop.train_step = counting(loop.train_step, waits["steps"])
        loop.evaluate = counting(loop.evaluate, waits["validations"])
        runpy.run_path(sys.argv[0], run_name="__main__")
    if waits["steps"]:
        print(json.dumps(waits))


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    main()
