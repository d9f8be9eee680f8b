"""Wait for what other processes do, and see whether they have ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 60.0  # far more than a process needs to begin or end


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_ended(process: int | str) -> bool:
    """Whether a process is gone, or only its parent has yet to ask for its status."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"
