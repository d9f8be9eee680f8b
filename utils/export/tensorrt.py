"""TensorRT engines with metadata.json in a folder: built from an ONNX graph, run on the first GPU.

An engine is machine code for the GPU that builds it: `opening.py` loads one only if --runtime asks
for it. Written from the documentation of TensorRT and cuda-python, tested only with stand-ins.
"""

from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.errors import UserError, brief
from duet.utils.export.metadata import (
    METADATA_FILE,
    Metadata,
    Outputs,
    fault_of_returned,
    metadata_as_json,
    metadata_of_folder,
)
from duet.utils.export.quantization import Calibration
from duet.utils.files.regular import UNLIMITED, read_bytes
from duet.utils.optional import import_optional

ENGINE = "model.engine"
TENSORRT_FILES = ENGINE, METADATA_FILE
INPUT, OUTPUT = "images", "output0"
MAX_ENGINE_BYTES = 1 << 33
CUDA = "cuda.bindings.runtime"


def write_engine(
    graph: Path, path: Path, metadata: Metadata, calibration: Calibration | None
) -> None:
    """Write a folder of engine and metadata; takes minutes, as TensorRT times its kernels."""
    tensorrt = import_optional("tensorrt", "--include engine")
    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    builder = tensorrt.Builder(logger)
    # Types are only hints by default in TensorRT 10; in 11 networks are always strongly typed.
    flag = getattr(tensorrt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse(read_bytes(graph, UNLIMITED)):
        raise UserError(f"TensorRT cannot read the graph: {brief(str(parser.get_error(0)))}")
    engine = builder.build_serialized_network(network, builder.create_builder_config())
    if engine is None:
        raise UserError("TensorRT could not build an engine; see its messages above")
    path.mkdir()
    (path / ENGINE).write_bytes(engine)
    (path / METADATA_FILE).write_text(metadata_as_json(metadata), encoding="utf-8")


class TensorRtRuntime:
    def __init__(self, path: Path, threads: int | None = None) -> None:
        tensorrt = import_optional("tensorrt", f"--weights {path}")
        self._cuda: Any = import_optional(CUDA, f"--weights {path}")
        self.metadata = metadata_of_folder(path, TENSORRT_FILES)
        logger = tensorrt.Logger(tensorrt.Logger.ERROR)
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
        wanted = self.metadata.batch_size, 3, *self.metadata.image_size
        if shapes[0] != wanted or fault_of_returned(self.metadata, shapes[1:], wanted[0]):
            raise UserError("engine and metadata belong to two models; export it with export.py")
        self._found = np.empty(shapes[1], np.float32)
        sizes = {INPUT: 4 * int(np.prod(shapes[0])), OUTPUT: self._found.nbytes}
        self._memory = {name: self._call("cudaMalloc", size) for name, size in sizes.items()}
        for name, address in self._memory.items():
            self._context.set_tensor_address(name, int(address))
        self._stream = self._call("cudaStreamCreate")
        self.name = f"TensorRT {tensorrt.__version__}, GPU"

    def __call__(self, images: np.ndarray) -> Outputs:
        given = np.ascontiguousarray(images, np.float32)
        kinds = self._cuda.cudaMemcpyKind
        given_at, to_gpu = given.ctypes.data, kinds.cudaMemcpyHostToDevice
        self._call("cudaMemcpy", self._memory[INPUT], given_at, given.nbytes, to_gpu)
        if not self._context.execute_async_v3(self._stream):
            raise UserError("TensorRT has failed; its message above has the reason")
        self._call("cudaStreamSynchronize", self._stream)
        found, to_host = self._found, kinds.cudaMemcpyDeviceToHost
        self._call("cudaMemcpy", found.ctypes.data, self._memory[OUTPUT], found.nbytes, to_host)
        return (found.copy(),)

    def _call(self, name: str, *arguments: object) -> Any:
        """Call CUDA; return its results without the status, or raise UserError."""
        status, *found = getattr(self._cuda, name)(*arguments)
        if int(status):
            raise UserError(f"the GPU has failed: {name} returned {int(status)}")
        return found[0] if found else None
