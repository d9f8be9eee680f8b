"""ncnn's two files in a folder, with metadata.json: made of a trace by pnnx, run on the CPU.

pnnx reads ONNX graphs too, but did not end on one of a YOLOv5n.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from duet.utils.errors import UserError
from duet.utils.export.metadata import (
    MAX_METADATA_BYTES,
    METADATA_FILE,
    Metadata,
    Outputs,
    metadata_as_json,
    metadata_of_folder,
)
from duet.utils.export.quantization import Calibration
from duet.utils.files.regular import pinned
from duet.utils.optional import import_optional, run_program

MODEL, WEIGHTS = "model.ncnn.param", "model.ncnn.bin"  # as pnnx names them
NCNN_FILES = MODEL, WEIGHTS, METADATA_FILE
INPUT, OUTPUT = "in0", "out0"
MAX_WEIGHT_BYTES = 1 << 32
# ncnn's default is half precision where the CPU has it; results are to be the model's.
ROUNDED = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage")


def write_ncnn(
    trace: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Make a folder of model, weights and metadata; UserError for a batch, or if pnnx fails."""
    if metadata.batch_size > 1:
        raise UserError(
            f"--batch-size {metadata.batch_size}: ncnn takes one image at a time; give 1"
        )
    program = import_optional("pnnx", "--include ncnn").EXEC_PATH
    height, width = metadata.image_size
    half = int(metadata.precision == "float16")
    with tempfile.TemporaryDirectory(dir=trace.parent) as folder:
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


class NcnnRuntime:
    """A network that ncnn has loaded; see `metadata.py::Runtime`."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        self._ncnn = import_optional("ncnn", f"--weights {path}")
        self.metadata = metadata_of_folder(path, NCNN_FILES)
        self._net = self._ncnn.Net()
        for name in ROUNDED:
            setattr(self._net.opt, name, False)
        if threads:
            self._net.opt.num_threads = threads
        with pinned(path / MODEL, MAX_METADATA_BYTES) as model:
            failed = self._net.load_param(str(model))
        with pinned(path / WEIGHTS, MAX_WEIGHT_BYTES) as weights:
            failed = failed or self._net.load_model(str(weights))
        if failed or (self._net.input_names(), self._net.output_names()) != ([INPUT], [OUTPUT]):
            raise UserError("ncnn cannot read it; export it with export.py")
        self.name = f"ncnn {self._ncnn.__version__}, CPU"

    def __call__(self, images: np.ndarray) -> Outputs:
        return (np.stack([self._run(image) for image in images]),)

    def _run(self, image: np.ndarray) -> np.ndarray:
        with self._net.create_extractor() as extractor:
            extractor.input(INPUT, self._ncnn.Mat(np.ascontiguousarray(image)))
            failed, found = extractor.extract(OUTPUT)
            if failed:
                raise UserError("ncnn cannot run it; export it with export.py")
            return np.array(found)
