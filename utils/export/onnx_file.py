"""An ONNX graph -> the ONNX file that export.py leaves: with metadata, and in int8 quantized."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from utils.export.quantization import quantize
from utils.files.atomic import atomic_file
from utils.optional import import_optional
from utils.runtimes.metadata import Metadata


def write_onnx(
    graph: Path,
    path: Path,
    metadata: Metadata,
    calibration: Callable[[], Iterator[np.ndarray]] | None,
) -> None:
    """Write an ONNX file with metadata, in 8 bits where there are images to calibrate it on.

    Raises:
        OSError: it cannot be written.
        UserError: it cannot be quantized.
    """
    onnx = import_optional("onnx", "--include onnx")
    model = onnx.load_model(graph) if calibration is None else quantize(graph, calibration)
    onnx.helper.set_model_props(model, metadata.texts())
    with atomic_file(path) as file:
        file.write(model.SerializeToString(deterministic=True))
