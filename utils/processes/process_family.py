"""Processes that must not outlive those that started them; Linux only.

Before: `launch.py` starts a launcher, the launcher the ranks. After: none of them is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
POLL_SECONDS = 0.05
ABORT_SECONDS = 6  # for the watchdog to end this process
STUCK_SECONDS = 15
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
    """Let a thread that calls abort() wait for ABORT_SECONDS first, and the others go on.

    Frameworks abort when a connection to another rank breaks, before anyone could say that this
    rank has died.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(signal.SIGABRT, ctypes.cast(_wait_before_abort, ctypes.c_void_p))


# By ctypes: `signal.signal` would have abort() go on at once, and Python answer later. To run
# Python in a handler is safe here, since abort() is a call, and comes at no other moment.
@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _wait_before_abort(number: int) -> None:
    time.sleep(ABORT_SECONDS)


@contextlib.contextmanager
def ending_after_sigterm(has_come: bool, seconds: float = STUCK_SECONDS) -> Iterator[None]:
    """In the block, SIGTERM ends this process so many seconds later, unless the block ends before.

    Launchers send it when another rank has died, for which this one may wait in a call that lets
    no thread of Python run: `import oneflow` waits for all ranks so. Hence a second process counts
    the seconds; Python's handlers write each signal into its pipe, whatever this process is doing.

    Args:
        has_come: before the block.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        yield  # it ends this process at once
        return
    notices, signals = os.pipe()
    os.set_blocking(signals, False)
    guard = os.fork()
    if guard == 0:
        os.close(signals)
        _kill_parent_after_sigterm(notices, seconds)
    before = signal.set_wakeup_fd(signals)
    if has_come:
        os.write(signals, bytes([signal.SIGTERM]))
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(signals)
        os.close(notices)
        os.waitpid(guard, 0)


def _kill_parent_after_sigterm(notices: int, seconds: float) -> NoReturn:
    """Read numbers of signals to the parent, until it closes its end, or is gone."""
    try:
        parent = os.getppid()
        os.setsid()  # launchers send signals to groups of processes
        while number := os.read(notices, 1):
            if number[0] == signal.SIGTERM and not _closes(notices, seconds):
                os.kill(parent, signal.SIGKILL)
    finally:
        os._exit(0)


def _closes(pipe: int, seconds: float) -> bool:
    """Whether the other end of a pipe is closed in time."""
    deadline = time.monotonic() + seconds
    while select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0]:
        if not os.read(pipe, 1):
            return True
    return False


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
    """Whether all have ended, adopted ones included, before so many seconds were over.

    After `adopt_orphans`: a process without children has no descendants then.
    """
    deadline = time.monotonic() + seconds
    while _has_children():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def kill_descendants() -> None:
    """End all at once; returns when none is left."""
    while not wait_for_descendants(0):
        send(descendants(os.getpid()), signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def _has_children() -> bool:
    """Whether one is left, after those that have ended were reaped."""
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
