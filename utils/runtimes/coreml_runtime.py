"""CoreML packages, run by CoreML on macOS."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from utils.errors import UserError
from utils.optional import import_optional
from utils.runtimes.metadata import metadata_of
from utils.runtimes.runtime import Outputs

INPUT, OUTPUT = "images", "output0"
SYSTEM = "darwin"
COREML_FILES = (  # of a package, as coremltools writes it
    "Manifest.json",
    "Data/com.apple.CoreML/model.mlmodel",
    "Data/com.apple.CoreML/weights/weight.bin",
)


class CoreMlRuntime:
    """A model that macOS runs; `runtime.py` says what its names mean. One thread at a time."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        if why := why_no_coreml():
            raise UserError(why)
        tools = import_optional("coremltools", f"--weights {path}")
        self._model: Any = tools.models.MLModel(str(path), compute_units=tools.ComputeUnit.CPU_ONLY)
        self.metadata = metadata_of(dict(self._model.user_defined_metadata))
        self.name = f"CoreML, coremltools {tools.__version__}, CPU"
        self._turn = threading.Lock()

    def __call__(self, images: np.ndarray) -> Outputs:
        with self._turn:
            return (np.asarray(self._model.predict({INPUT: images})[OUTPUT], np.float32),)


def why_no_coreml() -> str:
    """Return why this machine cannot run CoreML; "" if it can."""
    return "" if sys.platform == SYSTEM else "CoreML runs only on macOS"
