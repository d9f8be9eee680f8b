"""The real train.py with a fault in one rank. The variable FAULT describes it in JSON:

{"how": "kill", "rank": 1, "phase": "training", "step": 7}

The fault happens at this sign of progress of the phase: 0 for its start, counted over all epochs.
"""

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import train
from duet.backend.processes import this_process
from duet.utils.cli.train_config import read_train_flags
from duet.utils.processes import watchdog
from duet.utils.processes.command import run_command
from duet.utils.processes.suspend import FILE_VARIABLE
from tests.frameworks import keep_compiler_out

COMMAND = "FAULT_COMMAND"  # the process that the user started


def install(fault: dict[str, Any]) -> None:
    """Cause the fault."""
    steps = {"": 0}
    present = [""]
    phase, progress = watchdog.phase, watchdog.progress

    def look() -> None:
        if present[-1] == fault["phase"] and steps[present[-1]] == fault["step"]:
            FAULTS[fault["how"]]()
        steps[present[-1]] += 1

    @contextmanager
    def counted_phase(name: str) -> Iterator[None]:
        with phase(name):
            present.append(name)
            if name not in steps:
                steps[name] = 0
                look()
            yield
        present.pop()

    def counted_progress() -> None:
        progress()
        look()

    watchdog.phase, watchdog.progress = counted_phase, counted_progress


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_while_writing() -> None:
    """Kill this process when its next file is complete, but does not have its name yet."""
    os.fsync = lambda descriptor: kill()  # type: ignore[assignment]


def make_file() -> None:
    Path(read_train_flags()[0]["suspend_file"]).touch()


def interrupt_command() -> None:
    os.kill(int(os.environ[COMMAND]), signal.SIGINT)


def ask_command() -> None:
    os.kill(int(os.environ[COMMAND]), signal.SIGUSR1)
    while not Path(os.environ[FILE_VARIABLE]).exists():
        time.sleep(0.01)


def ask_rank() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def raise_defect() -> None:
    raise RuntimeError("a defect")


def stand_still() -> None:
    time.sleep(1000)


def pause() -> None:
    """Let a test cut the connection meanwhile."""
    Path(os.environ["TMPDIR"], "pausing").touch()
    time.sleep(3)


def fill_disk() -> None:
    """Let this process write only small files from now on, as on a full disk: its log is one."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))


FAULTS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        kill,
        kill_while_writing,
        make_file,
        ask_command,
        ask_rank,
        interrupt_command,
        fill_disk,
        raise_defect,
        stand_still,
        pause,
    )
}


if __name__ == "__main__":
    keep_compiler_out()
    os.environ.setdefault(COMMAND, str(os.getpid()))
    planned = json.loads(os.environ["FAULT"])
    if this_process().rank == planned["rank"]:
        install(planned)
        if planned["phase"] == "joining":
            Path(os.environ["TMPDIR"], "joining").touch()
            FAULTS[planned["how"]]()
    run_command(train.main, several=True)
