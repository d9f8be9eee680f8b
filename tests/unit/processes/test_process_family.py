"""How a rank ends; what a process has: cores, workers, kept memory, and texts of other ranks."""

import os
import signal
import subprocess
import sys
import time

import pytest

from duet.backend.cores import cores_of_rank
from duet.utils.processes import cores as cores_module
from duet.utils.processes.cores import loader_workers
from duet.utils.processes.exit_status import ending_in_any_call
from duet.utils.processes.suspend import listening
from duet.utils.project import PROJECT
from tests.environments import has_ended, python, wait_until
from tests.rank_threads import run_rank_threads

# A process that waits in a call in which no thread of Python runs, as `import oneflow` does.
STUCK = """
import ctypes, sys
from duet.utils.processes.exit_status import ending_in_any_call
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
def test_signal_ends_a_process_stuck_in_a_native_call(number: int) -> None:
    process = start_stuck(60)
    time.sleep(0.5)
    assert process.poll() is None  # until it is asked to end, it may wait
    process.send_signal(number)
    process.communicate(timeout=10)
    assert process.returncode == -number


def test_stuck_process_times_out_with_its_stack() -> None:
    process = start_stuck(0.5)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 1
    assert errors.startswith("Timeout (0:00:00.500000)!") and "<module>" in errors


def test_signals_ask_again_after_the_block_ends() -> None:
    with listening("", None) as stop:
        with ending_in_any_call(0.2):
            pass
        time.sleep(0.4)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.cause() == "SIGTERM"


ABORTING = """
import ctypes, os, sys, threading, time
from duet.utils.system import children
children.ABORT_SECONDS = float(sys.argv[1])
children.delay_abort()
threading.Thread(target=ctypes.CDLL(None).abort).start()
time.sleep(1)
os._exit(7)
"""


@pytest.mark.parametrize(("seconds", "code"), [(60, 7), (0.1, -signal.SIGABRT)])
def test_other_threads_run_on_briefly_before_an_abort(seconds: float, code: int) -> None:
    assert python("-c", ABORTING, seconds).returncode == code


# What a launcher does that starts its ranks in a thread; then it may end, too.
LAUNCHER = """
import subprocess, sys, threading, time
rank = "from duet.utils.processes.exit_status import end_as_orphan; import time; "
rank += "end_as_orphan(); print('runs', flush=True); time.sleep(1.5); print('ran', flush=True); "
rank += "time.sleep(60)"
ranks = []
starter = threading.Thread(target=lambda: ranks.append(
    subprocess.Popen([sys.executable, "-c", rank], stdout=subprocess.PIPE, text=True)))
starter.start()
starter.join()
print(ranks[0].stdout.readline(), ranks[0].stdout.readline(), ranks[0].pid, flush=True)
"""


def test_rank_outlives_its_starting_thread_but_not_launcher() -> None:
    done = python("-c", LAUNCHER)
    *lines, rank = done.stdout.split()
    assert lines == ["runs", "ran"]
    wait_until(lambda: has_ended(rank))


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


def test_stalled_rank_is_named_with_phase_and_stack() -> None:
    process = start(0.5, 3, "hang")
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed) == (1, "in training, step 3\n")
    name = f"rank 1 ({os.uname().nodename})"
    line = f"error: {name}: no progress for 1 s in training, step 3 (--timeout 0.5); ending the job"
    assert line in errors and "in stand_still" in errors


def test_time_while_stopped_does_not_count() -> None:
    process = start(1.5, 20)
    time.sleep(1)
    process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    process.send_signal(signal.SIGCONT)
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed, errors) == (0, "in training, step 20\n", "")


RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize(
    ("own", "launchers", "ranks", "cores"),
    [
        (16, 16, 1, 16),
        (16, 16, 4, 4),  # not bound
        (8, 16, 4, 4),  # bound to one of two nodes
        (2, 16, 4, 2),  # bound to fewer than its part
        (2, 2, 4, 1),
    ],
)
def test_rank_gets_its_share_of_the_launchers_cores(monkeypatch, own, launchers, ranks, cores):
    of_process = {0: own, os.getppid(): launchers}
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(of_process[process])))
    for name, value in zip(RANK_VARIABLES, (0, 0, ranks, ranks), strict=True):
        monkeypatch.setenv(name, str(value))
    assert cores_of_rank() == cores
    monkeypatch.delenv("LOCAL_WORLD_SIZE")  # as OneFlow's launcher leaves it
    assert cores_of_rank() == cores


@pytest.mark.parametrize(
    ("device", "has_gpu", "cores", "workers"),
    [
        ("cpu", True, 1, 1),
        ("cpu", True, 16, 4),
        ("cpu", True, 64, 8),
        ("", False, 4, 2),
        ("", True, 4, 2),
        ("", True, 2, 2),
        ("0", True, 64, 62),
    ],
)
def test_default_workers_follow_cores_and_device(monkeypatch, device, has_gpu, cores, workers):
    monkeypatch.setattr(cores_module, "cores_of_rank", lambda: cores)
    monkeypatch.setattr(cores_module, "load_driver", lambda: object() if has_gpu else None)
    assert loader_workers(None, device) == workers
    assert loader_workers(8, device) == min(8, cores)  # as asked for


FAULTS = """
import platform, resource, sys
import numpy as np
from duet.utils import memory
if sys.argv[1] != "plain":
    assert getattr(memory, sys.argv[1])() == (platform.libc_ver()[0] == "glibc")
for turn in range(4):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(int(sys.argv[2]) * 2**20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, platform.libc_ver()[0])
"""


def faults(mode, mebibytes=16):
    count, library = python("-c", FAULTS, mode, mebibytes).stdout.split()
    if library != "glibc":
        pytest.skip(f"the C library is {library}")
    return int(count)


@pytest.mark.parametrize("keep", ["keep_freed_memory", "keep_freed_images"])
def test_freed_memory_is_reused_without_page_faults(keep):
    # Three arrays of 16 MiB are 12,288 pages of 4 KiB, or 24 of 2 MiB.
    assert faults(keep) < max(faults("plain") / 10, 10)


def test_worker_releases_the_memory_of_a_huge_image():
    # Three arrays of 48 MiB are 72 pages even of 2 MiB, and all of them fault again.
    assert faults("keep_freed_images", 48) >= 72 > faults("keep_freed_memory", 48)


# The folder of a run may have any name that a file may have.
NAMES = ["", "runs/exp", "runs/größe", os.fsdecode(b"caf\xe9\n")]


@pytest.mark.parametrize("name", NAMES)
def test_every_rank_receives_the_text_of_the_first(name):
    def ask(world):
        own = name if world.process.is_main else ""
        return world.broadcast_text(own), world.all_have(name), world.all_have(own)

    assert run_rank_threads(3, ask) == [(name, True, name == "")] * 3
