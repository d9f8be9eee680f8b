"""Ctrl-C before a command can answer it: while it imports what it needs.

Standard library only: scripts that set environments up use it too.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_INTERRUPTED = 130  # as shells say of Ctrl-C


def end_at_interrupt() -> None:
    """End this process at Ctrl-C from now on, with one line and EXIT_INTERRUPTED.

    Where Ctrl-C is ignored, as in the background of a shell script, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)


def raise_at_interrupt() -> None:
    """Raise KeyboardInterrupt at Ctrl-C from now on, where `end_at_interrupt` was called."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)
