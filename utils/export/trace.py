"""A TorchScript trace as the file that export.py leaves: it holds its metadata already."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from utils.runtimes.metadata import Metadata


def keep_trace(
    trace: Path,
    path: Path,
    metadata: Metadata,
    calibration: Callable[[], Iterator[np.ndarray]] | None,
) -> None:
    """Copy the trace."""
    shutil.copyfile(trace, path)
