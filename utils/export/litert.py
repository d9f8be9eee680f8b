"""LiteRT (TFLite) files with metadata: made of an ONNX graph by onnx2tf, run on the CPU.

onnx2tf needs Python 3.12 and an onnx that this project cannot take, so it has an environment of its
own and is found as a program. The metadata is an associated file of the format: a zip archive at
the end of the file (tensorflow.org/lite/models/convert/metadata).
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.errors import UserError, brief
from duet.utils.export.metadata import (
    METADATA_FILE,
    Metadata,
    Outputs,
    metadata_as_json,
    metadata_in_zip,
)
from duet.utils.export.quantization import Calibration
from duet.utils.files.regular import read_bytes
from duet.utils.optional import find_program, import_optional, run_program

PROGRAM, PACKAGE = "onnx2tf", "ai_edge_litert.interpreter"
MAX_FILE_BYTES = 1 << 31  # limit of the format: its offsets have 32 bits


def write_litert(
    graph: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Make a file that takes images (B, H, W, 3); UserError if onnx2tf is absent or fails."""
    program = find_program(PROGRAM, "--include tflite")
    with tempfile.TemporaryDirectory(dir=graph.parent) as folder:
        shutil.copyfile(graph, Path(folder, "model.onnx"))
        run_program([program, "-i", "model.onnx", "-o", "made", "-n"], Path(folder))
        made = Path(folder, "made", "model_float32.tflite")
        if not made.exists():
            raise UserError(f"{PROGRAM} did not write {made.name}")
        shutil.copyfile(made, path)
    with zipfile.ZipFile(path, "a") as archive:
        member = zipfile.ZipInfo(METADATA_FILE)  # of 1980: the same model, the same bytes
        archive.writestr(member, metadata_as_json(metadata))


class LiteRtRuntime:
    """An interpreter of LiteRT; see `metadata.py::Runtime`."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        litert = import_optional(PACKAGE, f"--weights {path}")
        content = read_bytes(path, MAX_FILE_BYTES)
        self.metadata = metadata_in_zip(content, METADATA_FILE)
        try:
            self._net: Any = litert.Interpreter(model_content=content, num_threads=threads)
            self._net.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise UserError(f"LiteRT cannot read it: {brief(str(error))}") from error
        self._inputs, self._outputs = self._net.get_input_details(), self._net.get_output_details()
        if [np.dtype(each["dtype"]).kind for each in self._inputs] != ["f"]:
            raise UserError("it takes no images of float32; export it with export.py")
        self.name = "LiteRT, CPU"

    def __call__(self, images: np.ndarray) -> Outputs:
        (given,) = self._inputs
        try:
            pixels = np.ascontiguousarray(images.transpose(0, 2, 3, 1), given["dtype"])
            self._net.set_tensor(given["index"], pixels)
            self._net.invoke()
            found = (self._net.get_tensor(each["index"]) for each in self._outputs)
            return tuple(np.asarray(output, np.float32) for output in found)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"LiteRT failed: {brief(str(error))}") from error
