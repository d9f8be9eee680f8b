"""TensorRT engines, with stand-ins for TensorRT and a GPU, which no test machine has."""

from __future__ import annotations

import ctypes
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from duet.backend import device, nn, ops
from duet.utils.errors import UserError
from duet.utils.export.metadata import metadata_as_json
from duet.utils.export.tensorrt import TensorRtRuntime, write_engine
from duet.utils.export.torchscript import TorchScriptRuntime
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


supported = pytest.mark.skipif(not device.supports("torchscript"), reason="PyTorch's alone")


class Doubling(nn.Module):
    def forward(self, images: Any) -> Any:
        return (images * 2.0).reshape(1, -1, 6)


def written(path: Path, text: str) -> Path:
    example = ops.tensor(np.zeros((1, 3, 32, 32), np.float32))
    path.write_bytes(nn.to_torchscript(Doubling().eval(), example, text))
    return path


@supported
def test_it_computes_what_the_module_does_and_has_its_metadata(tmp_path):
    path = written(tmp_path / "a.torchscript", metadata_as_json(METADATA))
    runtime, images = TorchScriptRuntime(path), random_images()
    (found,) = runtime(images)
    np.testing.assert_array_equal(found, rows_of(images))
    assert runtime.metadata == METADATA
    assert runtime.name.startswith("TorchScript, PyTorch")


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"text" * 1000])
def test_damage_is_a_clear_error(tmp_path, content):
    path = tmp_path / "a.torchscript"
    path.write_bytes(content)
    with pytest.raises(UserError, match="damaged, or it holds no metadata"):
        TorchScriptRuntime(path)


def test_a_file_of_another_exporter_is_named_as_such(tmp_path):
    path = tmp_path / "a.torchscript"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/extra/config.txt", '{"stride": 32, "names": ["a"]}')
    with pytest.raises(UserError, match="another program exported it, without our metadata"):
        TorchScriptRuntime(path)


def test_a_program_is_refused_where_it_cannot_be_loaded(tmp_path):
    """By PyTorch, which finds metadata alone, or by a backend that has no TorchScript."""
    path = tmp_path / "a.torchscript"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/extra/metadata.json", metadata_as_json(METADATA))
    runtime = TorchScriptRuntime(path)
    assert runtime.metadata == METADATA
    message = (
        "PyTorch cannot read the file as Torch"
        if device.supports("torchscript")
        else "which only one backend has; give --backend torch"
    )
    with pytest.raises(UserError, match=message):
        runtime(random_images())
