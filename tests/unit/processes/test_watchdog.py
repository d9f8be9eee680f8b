"""A process that stands still is named with its phase and its stack, and ended; others are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from duet.utils.project import PROJECT

# The steps come every tenth of a second.
PROGRAM = """
import sys, time
from duet.utils.processes import watchdog
def stand_still():
    time.sleep(60)
def work():
    for _ in range(int(sys.argv[2])):
        time.sleep(0.1)
        watchdog.progress()
watchdog.start(float(sys.argv[1]))
with watchdog.phase("training"):
    work()
    with watchdog.phase("saving"):
        pass
    print(watchdog.describe(), flush=True)
    if "hang" in sys.argv:
        stand_still()
"""
RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        cwd=PROJECT,
        env={**os.environ, **RANK},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_rank_without_progress_is_named_with_its_phase_and_stack_and_ended() -> None:
    process = start(0.5, 3, "hang")
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed) == (1, "in training, step 3\n")
    name = f"rank 1 ({os.uname().nodename})"
    line = f"error: {name}: no progress for 1 s in training, step 3 (--timeout 0.5); ending the job"
    assert line in errors and "in stand_still" in errors


def test_time_in_which_the_process_is_stopped_does_not_count() -> None:
    process = start(1.5, 20)
    time.sleep(1)
    process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    process.send_signal(signal.SIGCONT)
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed, errors) == (0, "in training, step 20\n", "")
