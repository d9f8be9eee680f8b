"""A status line of a long command: redrawn on a terminal, else printed from time to time.

Standard library only, and no syntax newer than Python 3.8: see `utils/setup/environments.py`.
"""

from __future__ import annotations

import shutil
import sys
import time

CLEAR_LINE = "\r\033[K"
LINE_SECONDS = 30.0  # between two lines where there is no terminal


class StateLine:
    """What is being done and for how long, until the block ends."""

    def __init__(self) -> None:
        self._start = self._told = time.monotonic()
        self._is_terminal = sys.stdout.isatty()

    def __enter__(self) -> StateLine:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_terminal:
            print(CLEAR_LINE, end="", flush=True)

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._start

    def tell(self, state: str) -> None:
        """Show the state, which says the time too; call it several times a second."""
        now = time.monotonic()
        if self._is_terminal:
            width = shutil.get_terminal_size().columns
            print(CLEAR_LINE + state[: width - 1], end="", flush=True)
        elif now >= self._told + LINE_SECONDS:
            self._told = now
            print(state, flush=True)
