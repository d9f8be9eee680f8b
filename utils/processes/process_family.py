"""Processes that must not outlive those that started them; Linux only.

Before: `launch.py` starts a launcher, the launcher the ranks. After: none of them is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
POLL_SECONDS = 0.05
ORPHAN_SECONDS = 30  # as long as torchrun waits after a SIGTERM


def ask_for_signal_when_parent_ends(number: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent is gone, however it ended."""
    _prctl(PR_SET_PDEATHSIG, number)


def end_as_orphan() -> None:
    """End this process when its parent is gone: SIGTERM at once, the end after ORPHAN_SECONDS.

    In between, a process that answers SIGTERM by writing its state has time to do so.
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
    """Let a thread that calls abort() wait for six seconds first, and the others go on.

    Frameworks abort when a connection to another rank breaks, before anyone could say that this
    rank has died. SIGABRT is 6, the argument of its handler: C's sleep(6), which signals allow.
    """
    _answer(signal.SIGABRT, "sleep")


@contextlib.contextmanager
def ending_after_sigterm(has_come: bool) -> Iterator[None]:
    """In the block, SIGTERM ends this process 15 s later; the handler gets it if the block ends.

    Launchers send it when another rank has died, for which this one may wait in a call that lets
    Python answer no signal. SIGTERM is 15, the argument of its handler: C's alarm(15).

    Args:
        has_come: before the block.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if handler is signal.SIG_DFL:
        yield  # it ends this process at once
        return
    _answer(signal.SIGTERM, "alarm")
    if has_come:
        signal.alarm(signal.SIGTERM)
    yield
    has_come = signal.alarm(0) > 0
    signal.signal(signal.SIGTERM, handler)
    if has_come:
        os.kill(os.getpid(), signal.SIGTERM)


def adopt_orphans() -> None:
    """Become the parent of every process whose parent ends, among those started from here."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found: list[int] = []
    pending = [process]
    while pending:
        # One that ends meanwhile has no folder any more.
        with contextlib.suppress(OSError):
            for file in Path("/proc", str(pending.pop()), "task").glob("*/children"):
                children = [int(child) for child in file.read_text().split()]
                found += children
                pending += children
    return found


def send(processes: list[int], number: signal.Signals) -> None:
    """A signal to each that is still there."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def wait_for_descendants(seconds: float) -> bool:
    """Whether all have ended, adopted ones included, before so many seconds were over."""
    deadline = time.monotonic() + seconds
    while True:
        _reap()
        if not descendants(os.getpid()):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)


def kill_descendants() -> None:
    """End all at once; returns when none is left."""
    while not wait_for_descendants(0):
        send(descendants(os.getpid()), signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(number: signal.Signals, function: str) -> None:
    """Have a function of the C library called with the number of a signal when it comes."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(number, ctypes.cast(getattr(libc, function), ctypes.c_void_p))


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
