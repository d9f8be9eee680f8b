"""SIGTERM ends a command in order, as Ctrl-C does: files are closed, and the exit code tells."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

EXIT_TERMINATED = 128 + signal.SIGTERM  # as shells say of it


@contextmanager
def ending_at_termination() -> Iterator[None]:
    """Raise SystemExit with EXIT_TERMINATED at SIGTERM in the block."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ending_later() -> Iterator[None]:
    """Have SIGINT and SIGTERM wait for the end of the block; for the main thread."""
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


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(EXIT_TERMINATED)
