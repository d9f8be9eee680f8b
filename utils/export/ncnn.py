"""A TorchScript trace -> ncnn's two files in a folder, with metadata.json, by the program pnnx.

pnnx reads ONNX graphs too, but did not end on one of a YOLOv5n.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from utils.errors import UserError
from utils.export.program import run_program
from utils.export.ranges import Calibration
from utils.optional import import_optional
from utils.runtimes.metadata import Metadata
from utils.runtimes.metadata_file import METADATA_FILE, metadata_as_json
from utils.runtimes.ncnn_runtime import MODEL, WEIGHTS


def write_ncnn(
    trace: Path,
    path: Path,
    metadata: Metadata,
    calibration: Calibration | None,
) -> None:
    """Make a folder of model, weights and metadata; UserError for a batch, or if pnnx fails."""
    if metadata.batch_size > 1:
        raise UserError(
            f"--batch-size {metadata.batch_size}: ncnn takes one image at a time; give 1"
        )
    program = import_optional("pnnx", "--include ncnn").EXEC_PATH
    height, width = metadata.image_size
    half = int(metadata.precision == "float16")
    with tempfile.TemporaryDirectory(prefix="duet-pnnx-") as folder:
        shutil.copyfile(trace, Path(folder, "model.pt"))
        shape = f"inputshape=[1,3,{height},{width}]"
        run_program([program, "model.pt", shape, f"fp16={half}"], Path(folder))
        path.mkdir()
        for name in (MODEL, WEIGHTS):
            made = Path(folder, name)
            if not made.exists():
                raise UserError(f"pnnx did not write {name}")
            shutil.copyfile(made, path / name)
    (path / METADATA_FILE).write_text(metadata_as_json(metadata), encoding="utf-8")
