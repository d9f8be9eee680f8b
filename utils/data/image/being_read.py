"""Which image a process is reading: known even if the process dies of it.

A decoder that crashes raises no exception, and a process that the system kills says nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

_note: Callable[[Path | None], None] = lambda path: None  # noqa: E731  # replaced in a worker


def note_each(note: Callable[[Path | None], None]) -> None:
    """Call `note` from now on with each image that this process reads, and with None after it."""
    global _note
    _note = note


def read_as(path: Path, read: Callable[[], Any]) -> Any:
    """Return `read()`; if the process dies meanwhile, the image is named as the cause.

    It runs in a frame that bears the image's name: faulthandler prints the frames of a process
    that crashes, and of a frame nothing but its name.
    """
    _note(path)
    try:
        # In angle brackets, else a traceback would look for source code in the image.
        code = _call.__code__.replace(co_filename=f"<image {path}>")
        return FunctionType(code, {})(read)
    finally:
        _note(None)


def _call(read: Callable[[], Any]) -> Any:
    return read()
