"""The state by which a change of a file shows: size, times and inode; its content is not read.

Before: an image and its label file. After: `known_scans.py` compares it with that of a last scan.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

# A file system's clock ticks every few milliseconds, that of FAT every two seconds: a file that was
# just changed may be changed again without another time.
RECENT_NS = 2_000_000_000


def state_of_files(paths: Sequence[str], now_ns: int) -> bytes | None:
    """Return what shows a change of these files, of which any may be absent.

    Args:
        now_ns: the time before they were looked at.

    Returns:
        None if a later change may not show: one was changed a moment ago, or cannot be seen.
    """
    states = [_state(path, now_ns) for path in paths]
    if None in states:
        return None
    parts = [f"{path}\0{state}\0" for path, state in zip(paths, states, strict=True)]
    return "".join(parts).encode("utf-8", "surrogatepass")


def _state(path: str, now_ns: int) -> str | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except (OSError, ValueError):
        return None
    changed, modified = status.st_ctime_ns, status.st_mtime_ns
    # A camera or a copy may give a file any time of modification, even one to come.
    if changed > now_ns - RECENT_NS or abs(now_ns - modified) < RECENT_NS:
        return None
    # With its number: of two files of one size and tick, a link may be turned to the other.
    return f"{status.st_size} {modified} {changed} {status.st_ino}"
