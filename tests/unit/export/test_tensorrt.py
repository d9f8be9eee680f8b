"""TensorRT engines, with stand-ins for TensorRT and a GPU, which no test machine has."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.export.metadata import metadata_as_json
from duet.utils.export.tensorrt import TensorRtRuntime, write_engine
from tests.onnx_files import METADATA, random_images, rows_of

SHAPES = {"images": (1, 3, 32, 32), "output0": (1, 512, 6)}


@pytest.fixture
def cuda(monkeypatch):
    """cuda.bindings.runtime, with the host's memory in place of the GPU's."""
    module, buffers = MagicMock(status=0), []

    def allocate(size):
        buffers.append(ctypes.create_string_buffer(size))
        return module.status, ctypes.addressof(buffers[-1])

    def copy(target, source, size, kind):
        ctypes.memmove(target, source, size)
        return (module.status,)

    module.cudaMalloc, module.cudaMemcpy = MagicMock(side_effect=allocate), copy
    module.cudaStreamCreate.return_value = 0, "stream"
    module.cudaStreamSynchronize.return_value = (0,)
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", module)
    return module


@pytest.fixture
def tensorrt(monkeypatch):
    """The module tensorrt and most of its objects: it builds and runs what doubles images."""
    one, addresses = MagicMock(__version__="10.0"), {}

    def execute(stream):
        given = ctypes.cast(addresses["images"], ctypes.POINTER(ctypes.c_float))
        rows = np.ascontiguousarray(rows_of(np.ctypeslib.as_array(given, SHAPES["images"])))
        ctypes.memmove(addresses["output0"], rows.ctypes.data, rows.nbytes)
        return True

    for name in ("Builder", "Runtime", "OnnxParser", "create_execution_context"):
        getattr(one, name).return_value = one
    one.NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
    one.parse.side_effect = lambda content: content == b"graph"
    one.get_error.return_value = "In node 7: no such operator"
    one.build_serialized_network.return_value = b"the engine"
    one.deserialize_cuda_engine.side_effect = lambda x: one if x == b"the engine" else None
    one.get_tensor_shape.side_effect = SHAPES.get
    one.set_tensor_address.side_effect = addresses.__setitem__
    one.execute_async_v3.side_effect = execute
    monkeypatch.setitem(sys.modules, "tensorrt", one)
    return one


@pytest.fixture
def graph(tmp_path):
    (tmp_path / "graph.onnx").write_bytes(b"graph")
    return tmp_path / "graph.onnx"


def test_an_engine_is_built_and_runs(tmp_path, tensorrt, cuda, graph):
    write_engine(graph, tmp_path / "made", METADATA, None)
    tensorrt.create_network.assert_called_once_with(2)
    assert (tmp_path / "made" / "metadata.json").read_text() == metadata_as_json(METADATA)
    runtime, images = TensorRtRuntime(tmp_path / "made"), random_images()
    assert (runtime.metadata, runtime.name) == (METADATA, "TensorRT 10.0, GPU")
    for factor in (1, 3):  # the second call leaves the result of the first as it is
        np.testing.assert_array_equal(runtime(images * factor)[0], rows_of(images * factor))
    assert cuda.cudaMalloc.call_count == 2
    cuda.status = 700
    with pytest.raises(UserError, match="the GPU has failed: cudaMemcpy returned 700"):
        runtime(images)


def test_an_error_of_tensorrt_is_reported(tmp_path, tensorrt, graph):
    tensorrt.build_serialized_network.return_value = None
    with pytest.raises(UserError, match="could not build an engine"):
        write_engine(graph, tmp_path / "made", METADATA, None)
    graph.write_bytes(b"other")
    with pytest.raises(UserError, match="cannot read the graph: 'In node 7: no such operator'"):
        write_engine(graph, tmp_path / "made", METADATA, None)
    assert not (tmp_path / "made").exists()
