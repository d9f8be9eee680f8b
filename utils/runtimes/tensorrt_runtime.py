"""TensorRT engines, run by TensorRT on the first GPU.

An engine holds machine code of a GPU: `opening.py` loads one only if --runtime asks for it. Written
after the documentation of TensorRT and cuda-python, tested only with stand-ins.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from utils.errors import UserError
from utils.files.regular import read_bytes, read_text_bytes
from utils.optional import import_optional
from utils.runtimes.metadata_file import MAX_METADATA_BYTES, METADATA_FILE, metadata_of_json
from utils.runtimes.runtime import Outputs
from utils.runtimes.shapes import require_shapes

ENGINE = "model.engine"
TENSORRT_FILES = ENGINE, METADATA_FILE
INPUT, OUTPUT = "images", "output0"
MAX_ENGINE_BYTES = 1 << 33
CUDA = "cuda.bindings.runtime"


class TensorRtRuntime:
    """An engine and its memory; `runtime.py` says what its names mean. One thread at a time."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        tensorrt = import_optional("tensorrt", f"--weights {path}")
        self._cuda: Any = import_optional(CUDA, f"--weights {path}")
        for name in (METADATA_FILE, ENGINE):
            if not (path / name).exists():
                raise UserError(f"the folder lacks {name}; export it with export.py")
        text = read_text_bytes(path / METADATA_FILE, MAX_METADATA_BYTES)
        self.metadata = metadata_of_json(text)
        logger = tensorrt.Logger(tensorrt.Logger.ERROR)
        tensorrt.init_libnvinfer_plugins(logger, "")
        # The engine lives as long as its runtime and context do.
        self._runtime = tensorrt.Runtime(logger)
        content = read_bytes(path / ENGINE, MAX_ENGINE_BYTES)
        self._engine = self._runtime.deserialize_cuda_engine(content)
        if self._engine is None:
            raise UserError(
                "TensorRT cannot read it: an engine is for one kind of GPU and one version of "
                "TensorRT; export it again here"
            )
        self._context = self._engine.create_execution_context()
        shapes = [tuple(self._engine.get_tensor_shape(name)) for name in (INPUT, OUTPUT)]
        require_shapes(self.metadata, *shapes)
        self._found = np.empty(shapes[1], np.float32)
        self._memory = {
            INPUT: self._allocated(4 * int(np.prod(shapes[0]))),
            OUTPUT: self._allocated(self._found.nbytes),
        }
        for name, address in self._memory.items():
            self._context.set_tensor_address(name, int(address))
        self._stream = self._call("cudaStreamCreate")
        self.name = f"TensorRT {tensorrt.__version__}, GPU"
        self._turn = threading.Lock()

    def __call__(self, images: np.ndarray) -> Outputs:
        given = np.ascontiguousarray(images, np.float32)
        kinds = self._cuda.cudaMemcpyKind
        with self._turn:
            self._copy(self._memory[INPUT], given.ctypes.data, given, kinds.cudaMemcpyHostToDevice)
            if not self._context.execute_async_v3(self._stream):
                raise UserError("TensorRT has failed; it says why above")
            self._call("cudaStreamSynchronize", self._stream)
            found = self._found
            self._copy(found.ctypes.data, self._memory[OUTPUT], found, kinds.cudaMemcpyDeviceToHost)
            return (found.copy(),)

    def _allocated(self, size: int) -> Any:
        return self._call("cudaMalloc", size)

    def _copy(self, target: Any, source: Any, array: np.ndarray, kind: Any) -> None:
        self._call("cudaMemcpy", target, source, array.nbytes, kind)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call CUDA; return its results without the status, or raise UserError."""
        status, *found = getattr(self._cuda, name)(*arguments)
        if int(status):
            raise UserError(f"the GPU has failed: {name} returned {int(status)}")
        return found[0] if found else None
