"""utils/processes/process_family.py: a process that is asked to end while it waits for others."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from utils.processes.process_family import descendants, ending_after_sigterm
from utils.processes.suspend import listening

# A process that waits in a call in which no thread of Python runs, as `import oneflow` does.
STUCK = """
import ctypes, sys
from utils.processes.process_family import ending_after_sigterm
from utils.processes.suspend import listening
with listening("", None), ending_after_sigterm(sys.argv[1] == "has come", seconds=0.5):
    print("waits", flush=True)
    mutex, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # for ever
"""


@pytest.fixture
def stuck():
    """Starts one in a group of its own, which signals reach as a whole; none is left."""
    started = []

    def start(argument):
        command = [sys.executable, "-c", STUCK, argument]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        assert process.stdout.readline() == "waits\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = set(descendants(os.getpid()))
    yield
    deadline = time.monotonic() + 10
    while left := set(descendants(os.getpid())) - before:
        assert time.monotonic() < deadline
        for process in left:  # an earlier test may have made this process adopt orphans
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
        time.sleep(0.05)


def test_sigterm_ends_a_process_that_waits_where_python_answers_nothing(stuck):
    process = stuck("")
    time.sleep(1)
    assert process.poll() is None  # until it is asked to end, it may wait
    for _ in range(2):
        os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(10) == -signal.SIGKILL


def test_sigterm_before_the_block_bounds_it_too(stuck):
    assert stuck("has come").wait(10) == -signal.SIGKILL


def test_sigterm_in_the_block_is_a_request_to_suspend_after_it():
    with listening("", None) as stop, ending_after_sigterm(stop.was_terminated, seconds=0.5):
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)
    assert stop.was_terminated


def test_without_sigterm_nothing_is_bounded_and_a_later_one_is_noticed():
    with listening("", None) as stop:
        with ending_after_sigterm(stop.was_terminated, seconds=0.1):
            os.kill(os.getpid(), signal.SIGUSR1)  # another request
            time.sleep(0.5)
        assert not stop.was_terminated
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.was_terminated


ABORTING = """
import ctypes, os, sys, threading, time
from utils.processes import process_family
process_family.ABORT_SECONDS = float(sys.argv[1])
process_family.delay_abort()
threading.Thread(target=ctypes.CDLL(None).abort).start()
time.sleep(1)
os._exit(7)
"""


@pytest.mark.parametrize(("seconds", "code"), [(60, 7), (0.1, -signal.SIGABRT)])
def test_the_other_threads_go_on_for_a_while_before_one_aborts(seconds, code):
    done = subprocess.run([sys.executable, "-c", ABORTING, str(seconds)], timeout=60)
    assert done.returncode == code
