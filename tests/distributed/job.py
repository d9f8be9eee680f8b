"""A stand-in for train.py: the same start and end, and phases whose steps wait for all ranks.

The variable JOB says in JSON what goes wrong: {"how": "kill", "rank": 1, "phase": "training"}.
That phase has no end of its own. Files in JOB_FOLDER show how far rank 0 is.
"""

import itertools
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from duet.backend import ops
from duet.backend.processes import this_process
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.processes import watchdog
from duet.utils.processes.command import run_command
from duet.utils.processes.launch import launch
from duet.utils.processes.ranks import joined
from duet.utils.processes.suspend import StopRequests, Suspended, listening

PHASES = ("caching", "training", "validation", "saving")
FAILING_STEP = 3


def main() -> None:
    config = parse_train_flags()
    with listening("", None) as stop:
        launch(config.backend, config.device, config.nproc, config.check_processes, stop)
        plan = json.loads(os.environ["JOB"])
        with joined(config.backend, config.device, config.timeout) as world:
            stop.take_signals()
            stop.agree = world.any
            assert ops.device_of(ops.zeros((1,))) == "cpu"
            for phase in PHASES:
                work(phase, plan, stop)
    if this_process().is_main:
        print("all done")


def begins(phase: str, plan: dict[str, Any]) -> bool:
    """Report that a phase begins; return whether this rank must fail in it."""
    if this_process().is_main:
        Path(os.environ["JOB_FOLDER"], phase).touch()
    return plan.get("phase") == phase and this_process().rank == plan["rank"]


def work(phase: str, plan: dict[str, Any], stop: StopRequests) -> None:
    with watchdog.phase(phase):
        fails = begins(phase, plan)
        if fails and plan["how"] == "kill":
            kill_after(plan["seconds"])
        for step in itertools.count(1) if plan.get("phase") == phase else range(1, 4):
            watchdog.progress()
            if fails and step == FAILING_STEP:
                go_wrong(plan["how"])
            if stop.cause():  # asked by all ranks together
                raise Suspended("suspended")


def kill_after(seconds: float) -> None:
    """Send SIGKILL from another thread, whatever this process is doing then."""
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def go_wrong(how: str) -> None:
    if how == "raise":
        raise RuntimeError("a defect")
    if how == "stand still":
        time.sleep(1000)


if __name__ == "__main__":
    run_command(main, several=True)
