"""ONNX files, run by ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utils.optional import import_optional
from utils.runtimes.metadata import metadata_of


class OnnxRuntime:
    """A session of ONNX Runtime; `runtime.py` says what its names mean."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        runtime = import_optional("onnxruntime", f"--weights {path}")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        self._session = runtime.InferenceSession(
            path.read_bytes(), options, ["CPUExecutionProvider"]
        )
        self.metadata = metadata_of(self._session.get_modelmeta().custom_metadata_map)
        self.name = f"ONNX Runtime {runtime.__version__}, CPU"
        self._input = self._session.get_inputs()[0].name

    def __call__(self, images: np.ndarray) -> np.ndarray:
        (output,) = self._session.run(None, {self._input: images})
        return np.asarray(output)
