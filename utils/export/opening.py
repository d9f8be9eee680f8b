"""An exported file -> the runtime that runs it, chosen by the file."""

from __future__ import annotations

from pathlib import Path

from utils.export.formats import find_format
from utils.runtimes.runtime import Runtime


def open_runtime(path: str | Path, threads: int | None = None) -> Runtime:
    """Load an exported file.

    Args:
        threads: of the CPU, to run it with; None: the runtime's own choice.

    Raises:
        UserError: no such file, no format that is known, damaged, or its runtime is not installed.
    """
    path = Path(path)
    return find_format(path).open(path, threads)
