"""ONNX files, run by ONNX Runtime on the CPU.

Before: `onnx_reading.py` checked the file. After: `models/inference/exported.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utils.errors import UserError, brief
from utils.optional import import_optional
from utils.runtimes.onnx_reading import read_onnx
from utils.runtimes.runtime import Outputs

NO_SPINNING = {f"session.{pool}_op.allow_spinning": "0" for pool in ("intra", "inter")}
ERRORS_ALONE = 3  # of the levels of its log; it warns of what is no mistake of ours


class OnnxRuntime:
    """A session of ONNX Runtime; `runtime.py` says what its names mean.

    Its threads do not spin while they wait: on cores that others use too, that takes the time of
    the very thread that they wait for.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        """Load a file; UserError as `read_onnx`, or if ONNX Runtime refuses it."""
        runtime = import_optional("onnxruntime", f"--weights {path}")
        model = read_onnx(path)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = ERRORS_ALONE
        for name, value in NO_SPINNING.items():
            options.add_session_config_entry(name, value)
        try:
            self._session = runtime.InferenceSession(
                model.content, options, ["CPUExecutionProvider"]
            )
        except Exception as error:  # of classes that it does not export
            raise UserError(f"ONNX Runtime does not take it: {brief(str(error))}") from error
        self.metadata = model.metadata
        self.name = f"ONNX Runtime {runtime.__version__}, CPU"
        self._input, self._input_type = self._session.get_inputs()[0].name, model.input_type
        self._sizes = model.sizes

    def __call__(self, images: np.ndarray) -> Outputs:
        self._sizes.check(images.shape)
        try:
            given = images.astype(self._input_type, copy=False)
            outputs = self._session.run(None, {self._input: given})
        except Exception as error:
            raise UserError(f"ONNX Runtime failed: {brief(str(error))}") from error
        return tuple(np.asarray(output, np.float32) for output in outputs)
