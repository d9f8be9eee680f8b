"""A TorchScript trace -> a CoreML package, by coremltools, with the metadata in its description.

It is written on any system. coremltools 9.0 names PyTorch 2.7 as the newest it was tested with.
"""

from __future__ import annotations

import contextlib
import io
import logging
from pathlib import Path

import numpy as np

from utils.errors import UserError, brief
from utils.export.ranges import Calibration
from utils.optional import import_optional
from utils.runtimes.coreml_runtime import INPUT, OUTPUT
from utils.runtimes.metadata import Metadata


def write_coreml(
    trace: Path,
    path: Path,
    metadata: Metadata,
    calibration: Calibration | None,
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
