"""Which image a process is reading: known even if the process dies of it.

A decoder that crashes raises no exception, and a process that the system kills says nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

Value = TypeVar("Value")


def tell_nobody(path: Path | None) -> None:
    """Ignore which image is being read."""


_tell: Callable[[Path | None], None] = tell_nobody


def tell_each(tell: Callable[[Path | None], None]) -> None:
    """Call `tell` from now on with each image that this process reads, and with None after it."""
    global _tell
    _tell = tell


def read_as(path: Path, read: Callable[[], Value]) -> Value:
    """Return `read()`; if the process dies meanwhile, the image is named as the cause.

    It runs in a frame that bears the image's name: faulthandler prints the frames of a process
    that crashes, and of a frame nothing but its name.
    """
    _tell(path)
    try:
        # In angle brackets, else a traceback would look for source code in the image.
        code = _call.__code__.replace(co_filename=f"<image {path}>")
        value: Value = FunctionType(code, {})(read)
        return value
    finally:
        _tell(None)


def _call(read: Callable[[], Any]) -> Any:
    return read()
