"""Make sure that processes do not outlive their parent; Linux only."""

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

from duet.utils.processes.start import handling
from duet.utils.text import STDERR

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
POLL_SECONDS = 0.05
PARENT_POLL_SECONDS = 0.5
ABORT_SECONDS = 6  # the launcher ends this process before
ORPHAN_SECONDS = 30  # as long as torchrun waits after SIGTERM


def ask_for_signal_when_parent_ends(number: int = signal.SIGTERM) -> None:
    """Make the kernel signal this process when the thread that started it ends; 0: no more.

    For parents that start processes in their main thread, or wait for them in the same one.
    """
    call_c_library("prctl", PR_SET_PDEATHSIG, number, 0, 0, 0)


def end_as_orphan() -> None:
    """End this process when its parent ends: SIGTERM at once, exit after ORPHAN_SECONDS.

    In between, a process that handles SIGTERM has time to save its state. The parent is polled:
    some launchers start ranks in threads that end.
    """
    threading.Thread(target=_end_after, args=(os.getppid(),), daemon=True, name="orphan").start()


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


def delay_abort() -> None:
    """Make a thread that calls abort() wait for ABORT_SECONDS, while the others continue.

    OneFlow aborts when a connection to another rank breaks. Without the delay, this would look like
    a failure of this rank, or disturb an orderly end.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(signal.SIGABRT, ctypes.cast(_wait_before_abort, ctypes.c_void_p))


# With `signal.signal`, abort() would continue at once and Python would handle the signal later.
# Python code in this ctypes handler is safe because it runs only inside abort().
@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _wait_before_abort(number: int) -> None:
    time.sleep(ABORT_SECONDS)


@contextlib.contextmanager
def ending_in_any_call(seconds: float) -> Iterator[None]:
    """End this process on SIGTERM or Ctrl-C in the block, or after a time limit.

    Ranks wait for each other in calls that block all Python threads, such as `import oneflow`.
    There is nothing to save at that point.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ending = {signal.SIGTERM} if ignored else {signal.SIGTERM, signal.SIGINT}
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)
    try:
        with handling(dict.fromkeys(ending, signal.SIG_DFL)):
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def ending_children() -> Iterator[None]:
    """Kill all processes started in the block, and what they started, when it ends."""
    call_c_library("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children
    others = set(descendants(os.getpid()))
    try:
        yield
    finally:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while left := [process for process in descendants(os.getpid()) if process not in others]:
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(POLL_SECONDS)
            for process in left:
                with contextlib.suppress(ChildProcessError):  # its parent is still there
                    os.waitpid(process, os.WNOHANG)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def descendants(process: int) -> list[int]:
    """Return all descendants of a process."""
    found: list[int] = []
    pending = [process]
    while pending:
        # Ended processes have no folder.
        with contextlib.suppress(OSError):
            for file in Path("/proc", str(pending.pop()), "task").glob("*/children"):
                children = [int(child) for child in file.read_text().split()]
                found += children
                pending += children
    return found


def call_c_library(name: str, *arguments: int) -> None:
    """Call a function that Python 3.10 lacks; OSError on failure."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
