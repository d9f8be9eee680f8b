"""TensorRT engines, with stand-ins for TensorRT and a GPU, which no test machine has."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.export.metadata import metadata_as_json
from duet.utils.export.tensorrt import TensorRtRuntime, write_engine
from tests.unit.export.doubling import METADATA, random_images, rows_of


class Cuda:
    """Stands in for cuda.bindings.runtime: the memory of the GPU is the host's."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)

    def __init__(self) -> None:
        self.memory: list[Any] = []
        self.status = 0

    def cudaMalloc(self, size: int) -> tuple[int, int]:
        self.memory.append(ctypes.create_string_buffer(size))
        return self.status, ctypes.addressof(self.memory[-1])

    def cudaMemcpy(self, target: int, source: int, size: int, kind: int) -> tuple[int]:
        ctypes.memmove(target, source, size)
        return (self.status,)

    def cudaStreamCreate(self) -> tuple[int, str]:
        return self.status, "stream"

    def cudaStreamSynchronize(self, stream: str) -> tuple[int]:
        return (self.status,)


class Logger:
    ERROR = "errors"

    def __init__(self, level: str) -> None: ...


class TensorRt:
    """Stands in for the module tensorrt and for most of its objects."""

    __version__ = "10.0"
    Logger = Logger
    NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)

    def __init__(self) -> None:
        self.plan: bytes | None = b"the engine"
        self.parsed = b""
        self.addresses: dict[str, int] = {}
        self.num_columns = 6

    def init_libnvinfer_plugins(self, logger: Logger, namespace: str) -> bool:
        return True

    def Builder(self, logger: Logger) -> TensorRt:
        return self

    def Runtime(self, logger: Logger) -> TensorRt:
        return self

    def create_network(self, flags: int) -> str:
        self.flags = flags
        return "network"

    def OnnxParser(self, network: str, logger: Logger) -> TensorRt:
        return self

    def parse(self, content: bytes) -> bool:
        self.parsed = content
        return content.startswith(b"graph")

    def get_error(self, index: int) -> str:
        return "In node 7: no such operator"

    def create_builder_config(self) -> str:
        return "settings"

    def build_serialized_network(self, network: str, settings: str) -> bytes | None:
        return self.plan

    def deserialize_cuda_engine(self, content: bytes) -> TensorRt | None:
        return self if content == b"the engine" else None

    def create_execution_context(self) -> TensorRt:
        return self

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (1, 3, 32, 32) if name == "images" else (1, 512, self.num_columns)

    def set_tensor_address(self, name: str, address: int) -> None:
        self.addresses[name] = address

    def execute_async_v3(self, stream: str) -> bool:
        images = np.ctypeslib.as_array(
            ctypes.cast(self.addresses["images"], ctypes.POINTER(ctypes.c_float)), (1, 3, 32, 32)
        )
        rows = np.ascontiguousarray(rows_of(images))
        ctypes.memmove(self.addresses["output0"], rows.ctypes.data, rows.nbytes)
        return True


@pytest.fixture
def tensorrt(monkeypatch: pytest.MonkeyPatch) -> TensorRt:
    module = TensorRt()
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    return module


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    module = Cuda()
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", module)
    return module


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    (tmp_path / "graph.onnx").write_bytes(b"graph")
    return tmp_path / "graph.onnx"


def test_an_engine_is_built_and_runs(tmp_path, tensorrt, cuda, graph):
    write_engine(graph, tmp_path / "made", METADATA, None)
    assert (tensorrt.parsed, tensorrt.flags) == (b"graph", 2)
    assert (tmp_path / "made" / "metadata.json").read_text() == metadata_as_json(METADATA)
    runtime, images = TensorRtRuntime(tmp_path / "made"), random_images()
    assert (runtime.metadata, runtime.name) == (METADATA, "TensorRT 10.0, GPU")
    for factor in (1, 3):  # the second call leaves the result of the first as it is
        np.testing.assert_array_equal(runtime(images * factor)[0], rows_of(images * factor))
    assert len(cuda.memory) == 2
    cuda.status = 700
    with pytest.raises(UserError, match="the GPU has failed: cudaMemcpy returned 700"):
        runtime(images)


def test_what_tensorrt_has_against_a_graph_is_reported(tmp_path, tensorrt, graph):
    tensorrt.plan = None
    with pytest.raises(UserError, match="could not build an engine"):
        write_engine(graph, tmp_path / "made", METADATA, None)
    graph.write_bytes(b"other")
    with pytest.raises(UserError, match="cannot read the graph: 'In node 7: no such operator'"):
        write_engine(graph, tmp_path / "made", METADATA, None)
    assert not (tmp_path / "made").exists()
