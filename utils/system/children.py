"""Signals and child processes, where systems differ.

Only Linux signals a child when its parent ends: elsewhere that is left out. Standard library only,
as is files.py: what sets up environments uses both.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

PR_SET_PDEATHSIG = 1  # linux/prctl.h
ABORT_SECONDS = 6  # the launcher ends this process before
IS_LINUX = sys.platform == "linux"
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
# Of those below, the ones this system has.
INTERRUPTS, SUSPENDING = (
    tuple(signal.Signals(getattr(signal, name)) for name in names if hasattr(signal, name))
    for names in (("SIGINT", "SIGBREAK"), ("SIGTERM", "SIGUSR1", "SIGHUP"))
)
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
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP if apart else 0}
    return {"start_new_session": apart, "preexec_fn": prepare}


def inheriting(numbers: Sequence[int]) -> dict[str, Any]:
    """Return options of Popen for a child that inherits open files, as `files.number_for_child`.

    On Windows it is apart from Ctrl-C; elsewhere signals are `blocked` for it.
    """
    if sys.platform == "win32":
        for number in numbers:
            os.set_handle_inheritable(number, True)
        startup = subprocess.STARTUPINFO(lpAttributeList={"handle_list": list(numbers)})
        return {**child_options(), "startupinfo": startup}
    return {"pass_fds": numbers}


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Send Ctrl-C to a process started apart; on Windows Ctrl-Break, which alone reaches it."""
    process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT))


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process started apart, and to what it started, if it runs."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        elif number == signal.SIGINT:
            interrupt(process)
        else:
            process.kill()


def ask_for_signal_when_parent_ends(number: int = signal.SIGTERM) -> None:
    """On Linux, signal this process when the thread that started it ends; 0: no more.

    For parents that start processes in their main thread, or wait for them in the same one.
    """
    if IS_LINUX:
        call_c_library("prctl", PR_SET_PDEATHSIG, number, 0, 0, 0)


def delay_abort() -> None:
    """On Linux, make a thread that calls abort() wait for ABORT_SECONDS; the others continue.

    OneFlow aborts when a connection to another rank breaks; that would look like a failure here.
    With `signal.signal`, abort() would continue at once. The handler runs only inside abort().
    """
    if not IS_LINUX:
        return
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
