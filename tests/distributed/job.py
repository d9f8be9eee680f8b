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

import numpy as np

import backend
from backend import dist, ops
from backend.processes import processes
from utils import watchdog
from utils.command import run_command
from utils.config import parse_train_flags
from utils.errors import UserError
from utils.launch import launch
from utils.suspend import FILE_VARIABLE, Suspended

PHASES = ("caching", "training", "validation", "saving")
FAILING_STEP = 3


def main() -> None:
    config = parse_train_flags()
    launch(config)
    plan = json.loads(os.environ["JOB"])
    backend.use(config.backend)
    device = backend.device.resolve(config.device)
    dist.start(device, 60)
    watchdog.start(plan.get("timeout", 60), dist.all_gather)
    assert ops.device_of(ops.zeros((1,))) == device == "cpu"
    for phase in PHASES:
        concerned = phase == plan.get("phase")
        with watchdog.phase(phase):
            if processes().is_main:
                Path(os.environ["JOB_FOLDER"], phase).touch()
            if concerned and processes().rank == plan["rank"] and plan["how"] == "kill":
                kill_after(plan["seconds"])
            for step in itertools.count(1) if concerned else range(1, 4):
                watchdog.progress()
                if concerned and processes().rank == plan["rank"] and step == FAILING_STEP:
                    go_wrong(plan["how"])
                suspend_together()
    dist.stop()
    if processes().is_main:
        print("all done")


def kill_after(seconds: float) -> None:
    """SIGKILL from another thread, at whatever this process is doing then."""
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def go_wrong(how: str) -> None:
    if how == "raise":
        raise RuntimeError("a defect")
    if how == "user error":
        raise UserError("a picture is missing")
    if how == "stand still":
        time.sleep(1000)


def suspend_together() -> None:
    """What every step does: add up whether a rank has been asked to suspend."""
    asked = Path(os.environ.get(FILE_VARIABLE, "/nowhere")).exists()
    votes = ops.tensor(np.array([asked], np.int64))
    dist.sum_(votes)
    if ops.to_numpy(votes)[0]:
        raise Suspended("suspended")


if __name__ == "__main__":
    run_command(main, several=True)
