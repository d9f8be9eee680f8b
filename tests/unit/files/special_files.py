"""Paths of which no reader may ever wait, or read to the end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

KINDS = ("fifo", "folder", "socket", "link to a fifo", "/dev/zero", "/dev/tty", "/proc/self/maps")


def make_special(kind: str, path: Path) -> None:
    """Put what is no regular file of a kind at a path; a link to it where it has its own place."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "link to a fifo":
        os.mkfifo(path.with_name("fifo"))
        path.symlink_to("fifo")
    else:
        path.symlink_to(kind)
