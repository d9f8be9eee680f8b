"""A TorchScript trace as the file that export.py leaves: it holds its metadata already."""

from __future__ import annotations

import shutil
from pathlib import Path

from utils.export.ranges import Calibration
from utils.runtimes.metadata import Metadata


def keep_trace(
    trace: Path,
    path: Path,
    metadata: Metadata,
    calibration: Calibration | None,
) -> None:
    """Copy the trace."""
    shutil.copyfile(trace, path)
