"""Orderly ends by Ctrl-C and SIGTERM for commands that save no state.

Standard library only, in Python 3.8 syntax: used by scripts that set up environments.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130  # shells' status for Ctrl-C
EXIT_TERMINATED = 128 + signal.SIGTERM  # shells' status for SIGTERM


def end_at_interrupt() -> None:
    """From now on, end this process on Ctrl-C with one line and EXIT_INTERRUPTED.

    Used while a command imports its dependencies. If Ctrl-C is ignored, as in the background of a
    shell script, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)


def raise_at_interrupt() -> None:
    """From now on, raise KeyboardInterrupt on Ctrl-C, if `end_at_interrupt` was called."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)


@contextmanager
def ending_at_termination() -> Iterator[None]:
    """Raise SystemExit with EXIT_TERMINATED on SIGTERM in the block, so that files are closed."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(EXIT_TERMINATED)


@contextmanager
def ending_later() -> Iterator[None]:
    """Defer SIGINT and SIGTERM to the end of the block; for the main thread."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught in came:
            signal.raise_signal(caught)
