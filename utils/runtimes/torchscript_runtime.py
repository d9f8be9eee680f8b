"""TorchScript files, run by PyTorch on the CPU.

Such a file is a program. PyTorch interprets it, and it can read and write files: `opening.py` loads
one only if it is asked to run TorchScript.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from backend import device, nn, ops
from backend.checks import CPU
from utils.errors import UserError, brief
from utils.files.regular import read_bytes
from utils.runtimes.metadata_file import metadata_of_json

MAX_WEIGHT_BYTES = 1 << 32


class TorchScriptRuntime:
    """A program that PyTorch interprets; `runtime.py` says what its names mean."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        require_torchscript(f"--weights {path}")
        try:
            self._run, text = nn.from_torchscript(read_bytes(path, MAX_WEIGHT_BYTES))
        except ValueError as error:
            raise UserError(brief(str(error))) from error
        self.metadata = metadata_of_json(text)
        if threads:
            device.set_host_threads(threads)
        self.name = f"TorchScript, {device.describe(CPU)}"

    def __call__(self, images: np.ndarray) -> np.ndarray:
        return ops.to_numpy(self._run(ops.tensor(images)))


def require_torchscript(what_for: str) -> None:
    """Raise UserError if the backend in use has no TorchScript."""
    if not device.supports("torchscript"):
        raise UserError(
            f"{what_for} needs TorchScript, which is PyTorch's alone; give --backend torch"
        )
