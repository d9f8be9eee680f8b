"""Processes that must not outlive the process that started them; Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from duet.utils.text import STDERR

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
POLL_SECONDS = 0.05
ABORT_SECONDS = 6  # the launcher ends this process meanwhile
ORPHAN_SECONDS = 30  # as long as torchrun waits after a SIGTERM


def ask_for_signal_when_parent_ends(number: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent ends in any way."""
    _prctl(PR_SET_PDEATHSIG, number)


def end_as_orphan() -> None:
    """End this process when its parent is gone: SIGTERM at once, exit after ORPHAN_SECONDS.

    In between, a process that answers SIGTERM has time to write its state.
    """
    parent = os.getppid()
    ask_for_signal_when_parent_ends()
    threading.Thread(target=_end_after, args=(parent,), daemon=True, name="orphan").start()


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


def delay_abort() -> None:
    """Let a thread that calls abort() wait for ABORT_SECONDS first, while the others go on.

    OneFlow aborts when a connection to another rank breaks. Without the delay that would look like
    the failure of this rank, or spoil an end in order.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(signal.SIGABRT, ctypes.cast(_wait_before_abort, ctypes.c_void_p))


# By ctypes: with `signal.signal` abort() would go on at once, and Python would answer later. Python
# code in this handler is safe: it runs only inside a call of abort().
@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _wait_before_abort(number: int) -> None:
    time.sleep(ABORT_SECONDS)


@contextlib.contextmanager
def ending_in_any_call(seconds: float) -> Iterator[None]:
    """End this process at SIGTERM or Ctrl-C in the block, and when it takes so many seconds.

    Ranks wait for each other in calls that let no Python thread run, as `import oneflow` does.
    Nothing that could be saved is there yet.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        for number, handler in before.items():
            signal.signal(number, handler)


def adopt_orphans() -> None:
    """Become the parent of every orphan among the descendants of this process."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, directly or not."""
    found: list[int] = []
    pending = [process]
    while pending:
        # A process that has ended meanwhile has no folder.
        with contextlib.suppress(OSError):
            for file in Path("/proc", str(pending.pop()), "task").glob("*/children"):
                children = [int(child) for child in file.read_text().split()]
                found += children
                pending += children
    return found


def send(processes: list[int], number: signal.Signals) -> None:
    """Send a signal to each process that is still there."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def wait_for_descendants(seconds: float) -> bool:
    """Return whether all descendants have ended in time, adopted ones included.

    Call it after `adopt_orphans`: then a process without children has no descendants.
    """
    deadline = time.monotonic() + seconds
    while _has_children():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def kill_descendants() -> None:
    """Kill all descendants; return when none is left."""
    while not wait_for_descendants(0):
        send(descendants(os.getpid()), signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def _has_children() -> bool:
    """Reap children that have ended; return whether one is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
