"""How a rank ends: by a signal, without progress, with its parent, or after a delay to abort."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from duet.utils.processes.process_family import ending_in_any_call
from duet.utils.processes.suspend import listening
from duet.utils.project import PROJECT

# A process that waits in a call in which no thread of Python runs, as `import oneflow` does.
STUCK = """
import ctypes, sys
from duet.utils.processes.process_family import ending_in_any_call
from duet.utils.processes.suspend import listening
with listening("", None), ending_in_any_call(float(sys.argv[1])):
    print("waits", flush=True)
    mutex, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # for ever
"""


def start_stuck(seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, str(seconds)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "waits\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_process_that_waits_where_python_answers_nothing(number: int) -> None:
    process = start_stuck(60)
    time.sleep(0.5)
    assert process.poll() is None  # until it is asked to end, it may wait
    process.send_signal(number)
    process.communicate(timeout=10)
    assert process.returncode == -number


def test_a_process_that_waits_too_long_shows_where_and_ends() -> None:
    process = start_stuck(0.5)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 1
    assert errors.startswith("Timeout (0:00:00.500000)!") and "<module>" in errors


def test_after_the_block_a_signal_asks_again_and_no_time_is_counted() -> None:
    with listening("", None) as stop:
        with ending_in_any_call(0.2):
            pass
        time.sleep(0.4)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.cause() == "SIGTERM"


ABORTING = """
import ctypes, os, sys, threading, time
from duet.utils.processes import process_family
process_family.ABORT_SECONDS = float(sys.argv[1])
process_family.delay_abort()
threading.Thread(target=ctypes.CDLL(None).abort).start()
time.sleep(1)
os._exit(7)
"""


@pytest.mark.parametrize(("seconds", "code"), [(60, 7), (0.1, -signal.SIGABRT)])
def test_the_other_threads_go_on_for_a_while_before_one_aborts(seconds: float, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", ABORTING, str(seconds)], timeout=60, check=False)
    assert done.returncode == code


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
