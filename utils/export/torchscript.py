"""TorchScript files: a trace with its metadata, run by PyTorch on the CPU.

Such a file is a program. PyTorch interprets it, and it can read and write files: `opening.py` loads
one only if --runtime asks for it. Its metadata is read without PyTorch.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from duet.backend import device, nn, ops
from duet.backend.contract import Tensor
from duet.utils.errors import UserError, brief
from duet.utils.export.metadata import METADATA_FILE, Metadata, Outputs, metadata_in_zip
from duet.utils.export.quantization import Calibration
from duet.utils.files.regular import read_bytes

MAX_FILE_BYTES = 1 << 32


def keep_trace(
    trace: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Copy the trace, which holds its metadata already."""
    shutil.copyfile(trace, path)


class TorchScriptRuntime:
    """A program that PyTorch interprets; see `metadata.py::Runtime`.

    It is loaded when it first runs: until then no backend need be chosen. PyTorch has one number of
    threads for the whole process, which may be another program: it holds here too, as for weights.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        self._content = read_bytes(path, MAX_FILE_BYTES)
        self.metadata = metadata_in_zip(self._content, f"/extra/{METADATA_FILE}")
        self.name = "TorchScript, PyTorch, CPU"
        self._run: Callable[[Tensor], Any] | None = None

    def __call__(self, images: np.ndarray) -> Outputs:
        self._run = self._run or self._load()
        try:
            found = self._run(ops.tensor(images))
            outputs = found if isinstance(found, tuple) else (found,)
            return tuple(map(ops.to_numpy, outputs))
        except RuntimeError as error:
            raise UserError(f"TorchScript failed: {brief(str(error))}") from error

    def _load(self) -> Callable[[Tensor], Any]:
        if not device.supports("torchscript"):
            raise UserError(
                "TorchScript runs in PyTorch, which only one backend has; give --backend torch"
            )
        try:
            run: Callable[[Tensor], Any] = nn.from_torchscript(self._content)
        except ValueError as error:
            raise UserError(brief(str(error))) from error
        self._content = b""
        return run
