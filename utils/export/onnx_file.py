"""An ONNX graph -> the ONNX file that export.py leaves: with metadata, and in int8 quantized."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from utils.errors import UserError
from utils.export.quantization import quantize
from utils.export.ranges import Calibration
from utils.files.atomic import atomic_file
from utils.optional import import_optional
from utils.runtimes.metadata import FLOATS, PIXELS, PRODUCER, Metadata
from utils.runtimes.outputs import KINDS

VERSION = "0"  # of this program, which has had no release
# A file is one message of protobuf, which ends at 2 GiB; cells of the largest images take 180 MB.
MAX_WEIGHT_BYTES = 2**31 - 2**28

MEANINGS = {
    FLOATS: "(batch, 3, height, width), RGB in 0 to 1, each image scaled to fit and padded",
    PIXELS: "(height, width, 3), RGB, one image of any size",
}


def require_below_limit(arrays: Mapping[str, np.ndarray], half: bool) -> None:
    """Raise UserError if weights are too many for one ONNX file."""
    numbers = sum(array.size for array in arrays.values())
    limit = MAX_WEIGHT_BYTES // (2 if half else 4)
    if numbers > limit:
        remedy = "use --half" if not half and numbers <= 2 * limit else "export a smaller model"
        raise UserError(
            f"the weights have {numbers:,} numbers; an ONNX file holds at most {limit:,} of this "
            f"precision: {remedy}"
        )


def describe(model: Any, metadata: Metadata) -> None:
    """Have an ONNX model say what it is, who wrote it, and what goes in and comes out."""
    model.producer_name, model.producer_version = PRODUCER, VERSION
    del model.metadata_props[:]
    for name, text in metadata.texts().items():
        model.metadata_props.add(key=name, value=text)
    for value in model.graph.input:
        value.doc_string = MEANINGS[metadata.image]
    outputs = KINDS[metadata.output].outputs
    for value, output in zip(model.graph.output, outputs, strict=True):
        value.doc_string = output.meaning


def write_onnx(
    graph: Path,
    path: Path,
    metadata: Metadata,
    calibration: Calibration | None,
) -> None:
    """Write an ONNX file with metadata, in 8 bits where there are images to calibrate it on.

    Raises:
        OSError: it cannot be written.
        UserError: it cannot be quantized.
    """
    onnx = import_optional("onnx", "--include onnx")
    model = onnx.load_model(graph) if calibration is None else quantize(graph, calibration)
    describe(model, metadata)
    with atomic_file(path) as file:
        file.write(model.SerializeToString(deterministic=True))
