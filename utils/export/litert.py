"""An ONNX graph -> a LiteRT (TFLite) file, by the program onnx2tf, with its metadata.

onnx2tf needs Python 3.12 and an onnx that this project cannot take, so it has an environment of its
own and is found as a program. The metadata is an associated file of the format: a zip archive at
the end of the file (tensorflow.org/lite/models/convert/metadata).
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path

from utils.errors import UserError
from utils.export.program import run_program
from utils.export.ranges import Calibration
from utils.optional import find_program
from utils.runtimes.metadata import Metadata
from utils.runtimes.metadata_file import METADATA_FILE, metadata_as_json

PROGRAM = "onnx2tf"


def write_litert(
    graph: Path,
    path: Path,
    metadata: Metadata,
    calibration: Calibration | None,
) -> None:
    """Make a file that takes images (B, H, W, 3); UserError if onnx2tf is absent or fails."""
    program = find_program(PROGRAM, "--include tflite")
    with tempfile.TemporaryDirectory(prefix="duet-onnx2tf-") as folder:
        shutil.copyfile(graph, Path(folder, "model.onnx"))
        run_program([program, "-i", "model.onnx", "-o", "made", "-n"], Path(folder))
        made = Path(folder, "made", "model_float32.tflite")
        if not made.exists():
            raise UserError(f"{PROGRAM} did not write {made.name}")
        shutil.copyfile(made, path)
    with zipfile.ZipFile(path, "a") as archive:
        member = zipfile.ZipInfo(METADATA_FILE)  # of 1980: the same model, the same bytes
        archive.writestr(member, metadata_as_json(metadata))
