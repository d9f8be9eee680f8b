"""The first steps of a command, before imports that may be slow or missing; its signal handlers.

Standard library only, in Python 3.8 syntax: scripts that set up environments use it too.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NoReturn

from duet.utils.project import PROJECT, STAMP
from duet.utils.system.children import INTERRUPTS

OLDEST = (3, 10)
PACKAGES = (
    "cv2",
    "matplotlib",
    "numpy",
    "PIL",
    "psutil",
    "pycocotools",
    "safetensors",
    "tqdm",
    "yaml",
)
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130  # shells' status for Ctrl-C
EXIT_TERMINATED = 128 + signal.SIGTERM  # shells' status for SIGTERM

_called: ContextVar[str] = ContextVar("_called", default="")


@contextmanager
def called_as(command: str) -> Iterator[None]:
    """Name the command, such as "duet train", that Python code calls in the block."""
    before = _called.set(command)
    try:
        yield
    finally:
        _called.reset(before)


def is_called() -> bool:
    """Return whether Python code called this command: its process goes on afterwards."""
    return bool(_called.get())


def program() -> str:
    """Return what started this command: a script, or "duet train"."""
    return _called.get() or sys.argv[0]  # set by duet/__main__.py


def program_words() -> list[str]:
    """Return the interpreter arguments that start this command: a script, or -m duet NAME."""
    script = program()
    return ["-m", *script.split()] if script.startswith("duet ") else [script]


def start_command() -> None:
    """Set up Ctrl-C to end the process with one line, and check Python and its packages."""
    end_at_interrupt()
    open_closed_streams()
    problem = python_problem()
    if problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(EXIT_USER_ERROR)


def open_closed_streams() -> None:
    """Replace closed standard streams, as by `>&-`, with the null device.

    Otherwise the next file opened would get the number of one, and output of libraries, crashes or
    child processes would be written to it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # takes the free number of `name`
            os.set_inheritable(nowhere, True)  # for child processes
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))


def python_problem() -> str | None:
    """Return why this Python cannot run a command and how to fix it; None if it can."""
    if sys.version_info[:2] < OLDEST:
        reason = "is Python {}.{}, but 3.10 or newer is required".format(*sys.version_info)
    else:
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if not missing:
            return None
        reason = f"lacks the packages {', '.join(missing)}"
    ready = sorted(PROJECT.glob(f".venv/*/{STAMP}"), reverse=True)
    pythons = " or ".join(str(stamp.parent / "bin" / "python") for stamp in ready)
    if pythons:
        remedy = f"use {pythons} instead"
    elif (PROJECT / "Makefile").exists():
        remedy = f"run `make setup` in {PROJECT}, then use .venv/torch/bin/python instead; or run "
        remedy += f"`{sys.executable} -m pip install -r {PROJECT}/requirements.txt`"
    else:
        remedy = f"run `{sys.executable} -m pip install 'duet-detect[torch]'`"
    return f"{sys.executable} {reason}\n{remedy}"


def end_at_interrupt() -> None:
    """From now on, end this process on Ctrl-C with one line and EXIT_INTERRUPTED.

    Used while a command imports its dependencies. If Ctrl-C is ignored, as in the background of a
    shell script, it stays ignored.
    """
    for number in INTERRUPTS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def raise_at_interrupt() -> None:
    """From now on, raise KeyboardInterrupt on Ctrl-C, if `end_at_interrupt` was called."""
    for number in INTERRUPTS:
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def set_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    """Set signal handlers; no effect outside the main thread, where Python allows none.

    None, as `signal.getsignal` returns for a handler in C, leaves what there is.
    """
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)


@contextmanager
def handling(handlers: Mapping[signal.Signals, object]) -> Iterator[None]:
    """Handle signals like this in the block."""
    before = {number: signal.getsignal(number) for number in handlers}
    set_handlers(handlers)
    try:
        yield
    finally:
        set_handlers(before)


def ending_at_termination() -> AbstractContextManager[None]:
    """Raise SystemExit with EXIT_TERMINATED on SIGTERM in the block, so that files are closed."""
    return handling({signal.SIGTERM: _terminate})


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(EXIT_TERMINATED)
