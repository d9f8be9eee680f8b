"""CoreML packages with the metadata in their description: made of a trace, run on macOS.

They are written on any system. coremltools 9.0 names PyTorch 2.7 as the newest it was tested with.
"""

from __future__ import annotations

import contextlib
import io
import logging
import platform
from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.errors import UserError, brief
from duet.utils.export.metadata import Metadata, Outputs, metadata_of
from duet.utils.export.quantization import Calibration
from duet.utils.optional import import_optional

INPUT, OUTPUT = "images", "output0"
COREML_FILES = (  # files in a package written by coremltools
    "Manifest.json",
    "Data/com.apple.CoreML/model.mlmodel",
    "Data/com.apple.CoreML/weights/weight.bin",
)


def write_coreml(
    trace: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Make an ML program, a folder, for iOS 15 and macOS 12 up; UserError if that fails."""
    tools = import_optional("coremltools", "--include coreml")
    logging.getLogger("coremltools").setLevel(logging.WARNING)  # else each step of it has a line
    half = metadata.precision == "float16"
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bars
            model = tools.convert(
                str(trace),
                source="pytorch",
                convert_to="mlprogram",
                inputs=[tools.TensorType(INPUT, (metadata.batch_size, 3, *metadata.image_size))],
                outputs=[tools.TensorType(OUTPUT, dtype=np.float32)],
                compute_precision=tools.precision.FLOAT16 if half else tools.precision.FLOAT32,
                minimum_deployment_target=tools.target.iOS15,
                skip_model_load=True,
            )
        model.user_defined_metadata.update(metadata.texts())
        model.save(str(path))
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"coremltools cannot convert or write the model: {brief(str(error))}"
        ) from error


class CoreMlRuntime:
    """A model that macOS runs; see `metadata.py::Runtime`."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        if platform.system() != "Darwin":
            raise UserError("CoreML runs only on macOS")
        tools = import_optional("coremltools", f"--weights {path}")
        self._model: Any = tools.models.MLModel(str(path), compute_units=tools.ComputeUnit.CPU_ONLY)
        self.metadata = metadata_of(dict(self._model.user_defined_metadata))
        self.name = f"CoreML, coremltools {tools.__version__}, CPU"

    def __call__(self, images: np.ndarray) -> Outputs:
        return (np.asarray(self._model.predict({INPUT: images})[OUTPUT], np.float32),)
