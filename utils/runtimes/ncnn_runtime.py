"""ncnn's folders, run by ncnn on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utils.errors import UserError
from utils.files.regular import pinned, read_text_bytes
from utils.optional import import_optional
from utils.runtimes.metadata_file import MAX_METADATA_BYTES, METADATA_FILE, metadata_of_json
from utils.runtimes.runtime import Outputs
from utils.runtimes.shapes import require_shapes, shape_taken

MODEL, WEIGHTS = "model.ncnn.param", "model.ncnn.bin"  # as pnnx names them
NCNN_FILES = MODEL, WEIGHTS, METADATA_FILE
INPUT, OUTPUT = "in0", "out0"
MAX_WEIGHT_BYTES = 1 << 32
# Half precision where the CPU has it, unless told otherwise; the results are to be the model's.
ROUNDED = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage")


class NcnnRuntime:
    """A network that ncnn has loaded; `runtime.py` says what its names mean."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        self._ncnn = import_optional("ncnn", f"--weights {path}")
        for name in (METADATA_FILE, MODEL, WEIGHTS):
            if not (path / name).exists():
                raise UserError(f"the folder lacks {name}; export it with export.py")
        text = read_text_bytes(path / METADATA_FILE, MAX_METADATA_BYTES)
        self.metadata = metadata_of_json(text)
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
        found = np.stack([self._run(image) for image in images])
        require_shapes(self.metadata, shape_taken(self.metadata), found.shape)
        return (found,)

    def _run(self, image: np.ndarray) -> np.ndarray:
        with self._net.create_extractor() as extractor:
            extractor.input(INPUT, self._ncnn.Mat(np.ascontiguousarray(image)))
            failed, found = extractor.extract(OUTPUT)
            if failed:
                raise UserError("ncnn cannot run it; export it with export.py")
            return np.array(found)
