"""Signals and child processes, where systems differ.

Only Linux signals a child when its parent ends, and lists children: elsewhere that is left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
ABORT_SECONDS = 6  # the launcher ends this process before
POLL_SECONDS = 0.05
IS_LINUX = sys.platform == "linux"
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
SUSPENDING = (signal.SIGTERM, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else ()))
EXIT_NO_READER = 128 + 13  # shells' status for SIGPIPE, as of a program piped into `head`


@contextlib.contextmanager
def blocked(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Defer signals to the end of the block; processes started in it block them until ready."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock(numbers: Iterable[signal.Signals]) -> None:
    """Receive signals again that a parent has blocked."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def child_options(prepare: Callable[[], Any] | None = None, apart: bool = True) -> dict[str, Any]:
    """Return options of Popen: `prepare` is called first, on a fork; `apart` from Ctrl-C here."""
    if hasattr(os, "fork"):
        return {"start_new_session": apart, "preexec_fn": prepare}
    return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) if apart else 0}


def signal_group(process: subprocess.Popen[Any], number: int) -> None:
    """Send a signal to a process started apart, and to what it started, if it runs."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def ask_for_signal_when_parent_ends(number: int = signal.SIGTERM) -> None:
    """On Linux, signal this process when the thread that started it ends; 0: no more.

    For parents that start processes in their main thread, or wait for them in the same one.
    """
    if IS_LINUX:
        call_c_library("prctl", PR_SET_PDEATHSIG, number, 0, 0, 0)


@contextlib.contextmanager
def ending_children() -> Iterator[None]:
    """On Linux, kill all processes started in the block, and what they started, when it ends."""
    if not IS_LINUX:
        yield
        return
    call_c_library("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children
    others = set(descendants(os.getpid()))
    try:
        yield
    finally:
        with blocked({signal.SIGINT}):
            while left := [child for child in descendants(os.getpid()) if child not in others]:
                for process in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, KILL)
                time.sleep(POLL_SECONDS)
                for process in left:
                    with contextlib.suppress(ChildProcessError):  # its parent is still there
                        os.waitpid(process, os.WNOHANG)


def descendants(process: int) -> list[int]:
    """Return all descendants of a process; none beside Linux."""
    found: list[int] = []
    pending = [process]
    while pending:
        # Ended processes have no folder.
        with contextlib.suppress(OSError):
            for file in Path("/proc", str(pending.pop()), "task").glob("*/children"):
                children = [int(child) for child in file.read_text(encoding="ascii").split()]
                found += children
                pending += children
    return found


def delay_abort() -> None:
    """Make a thread that calls abort() wait for ABORT_SECONDS, while the others continue.

    OneFlow aborts when a connection to another rank breaks; that would look like a failure here.
    With `signal.signal`, abort() would continue at once. The handler runs only inside abort().
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(signal.SIGABRT, ctypes.cast(_wait_before_abort, ctypes.c_void_p))


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _wait_before_abort(number: int) -> None:
    time.sleep(ABORT_SECONDS)


def call_c_library(name: str, *arguments: int) -> None:
    """Call a function that Python 3.10 lacks; OSError on failure."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
