"""The formats that export.py writes: one row each, with what makes, runs and installs it.

Before: `--include` or a file names one. After: `models/export/job.py` writes it,
`opening.py` loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from utils.errors import UserError
from utils.export.onnx_file import write_onnx
from utils.export.ranges import Calibration
from utils.runtimes.metadata import Metadata
from utils.runtimes.onnx_runtime import OnnxRuntime
from utils.runtimes.runtime import Runtime

Convert = Callable[[Path, Path, Metadata, Calibration | None], None]


def anywhere() -> str:
    """Say nothing: the runtime of most formats runs on any machine that has its package."""
    return ""


@dataclass(frozen=True)
class Format:
    """A kind of exported file.

    Attributes:
        name: as --include has it.
        title: as people call it.
        ending: of the file, or folder, that replaces the ending of the weights.
        packages: what converting and running need, each a key of `utils/optional.py::INSTALL`.
        convert: takes the ONNX file, where to write, what the new file is to say of itself, and
            for int8 the images; None: the model's own backend makes it.
        open: loads one to run it, with a number of threads.
        why_not_run: says why this machine cannot run one; "" where it can.
        also_reads: endings of other files that its runtime opens, where --runtime names it.
        half, int8, dynamic, letterbox, nms, efficient_nms: whether the flags of these names work
            with it.
    """

    name: str
    title: str
    ending: str
    packages: tuple[str, ...]
    convert: Convert | None
    open: Callable[[Path, int | None], Runtime]
    also_reads: tuple[str, ...] = ()
    half: bool = False
    int8: bool = False
    dynamic: bool = False
    letterbox: bool = False
    nms: bool = False
    efficient_nms: bool = False
    why_not_run: Callable[[], str] = anywhere


FORMATS = (
    Format("onnx", "ONNX", ".onnx", ("onnx", "onnxruntime"), write_onnx, OnnxRuntime,
        half=True, int8=True, dynamic=True, letterbox=True, nms=True, efficient_nms=True),
)  # fmt: skip


def format_named(name: str) -> Format:
    """Return the format of --include; UserError names those that there are."""
    for row in FORMATS:
        if row.name == name:
            return row
    known = ", ".join(row.name for row in FORMATS)
    raise UserError(f"--include {name}: no such format; accepted: {known}")


def find_format(path: Path) -> Format:
    """Return the format of an exported file, by its ending; UserError for another file."""
    for row in FORMATS:
        if path.name.endswith(row.ending):
            return row
    endings = ", ".join(f"*{row.ending}" for row in FORMATS)
    raise UserError(f"--weights {path}: no exported file; those end in {endings}")


def is_exported(path: str | Path) -> bool:
    """Return whether a file's name is that of an exported one."""
    return any(Path(path).name.endswith(row.ending) for row in FORMATS)
