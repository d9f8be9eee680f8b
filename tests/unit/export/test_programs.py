"""Formats whose converters and runtimes are not installed with us, with stand-ins for these."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.export.converters import LiteRtRuntime, NcnnRuntime, write_litert, write_ncnn
from duet.utils.export.metadata import metadata_as_json
from duet.utils.export.tensorrt import TensorRtRuntime, write_engine
from duet.utils.optional import run_program
from duet.utils.project import PROJECT
from tests.environments import SECONDS, has_ended, wait_until
from tests.onnx_files import METADATA, random_images, rows_of

PROGRAM = """#!{python}
import json, sys
from pathlib import Path
Path({log!r}).write_text(json.dumps(sys.argv[1:]))
for name in {made!r}:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(b"content of " + Path(name).name.encode())
print("many words")
print("the last word", file=sys.stderr)
sys.exit({status})
"""


def stand_in_program(path: Path, made: tuple[str, ...], status: int = 0) -> Path:
    """Write a program that makes files and ends; it leaves its arguments in a log beside it."""
    log = str(path.with_suffix(".log"))
    path.write_text(PROGRAM.format(python=sys.executable, log=log, made=made, status=status))
    path.chmod(0o755)
    return path


def arguments_of(program: Path) -> list[str]:
    return json.loads(program.with_suffix(".log").read_text())


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "trace.pt").write_bytes(b"trace")
    return tmp_path / "trace.pt"


def play_pnnx(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    monkeypatch.setitem(sys.modules, "pnnx", SimpleNamespace(EXEC_PATH=str(program)))


def stand_in_ncnn() -> MagicMock:
    """The module ncnn, whose net and extractor are one object that doubles images."""
    net = MagicMock()
    net.load_param.side_effect = lambda path: -(b"damaged" in Path(path).read_bytes())
    net.load_model.return_value = 0
    net.input_names.return_value, net.output_names.return_value = ["in0"], ["out0"]
    extractor = net.create_extractor.return_value.__enter__.return_value
    extractor.extract.side_effect = lambda name: (
        0,
        rows_of(extractor.input.call_args[0][1][None])[0],
    )
    return MagicMock(Net=lambda: net, Mat=np.asarray, __version__="1.0")


def test_pnnx_writes_ncnn_files_that_ncnn_runs(tmp_path, monkeypatch, trace):
    program = stand_in_program(tmp_path / "pnnx", ("model.ncnn.param", "model.ncnn.bin"))
    play_pnnx(monkeypatch, program)
    monkeypatch.setitem(sys.modules, "ncnn", stand_in_ncnn())
    write_ncnn(trace, tmp_path / "made", METADATA, None)
    assert arguments_of(program) == ["model.pt", "inputshape=[1,3,32,32]", "fp16=0"]
    names = ["metadata.json", "model.ncnn.bin", "model.ncnn.param"]
    assert sorted(os.listdir(tmp_path / "made")) == names
    runtime, images = NcnnRuntime(tmp_path / "made", threads=2), random_images()
    assert (runtime.metadata, runtime.name) == (METADATA, "ncnn 1.0, CPU")
    np.testing.assert_array_equal(runtime(images)[0], rows_of(images))
    for name, text, fault in (
        ("model.ncnn.param", "damaged", "ncnn cannot read it"),
        ("metadata.json", "[", "metadata.json is not JSON"),
        ("model.ncnn.bin", None, "lacks model.ncnn.bin"),
    ):
        path = tmp_path / "made" / name
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(UserError, match=fault):
            NcnnRuntime(tmp_path / "made")


def test_failed_or_absent_program_leaves_no_files(tmp_path, monkeypatch, trace):
    play_pnnx(monkeypatch, stand_in_program(tmp_path / "pnnx", (), status=3))
    with pytest.raises(UserError, match="pnnx failed with exit code 3: 'the last word'"):
        write_ncnn(trace, tmp_path / "made", METADATA, None)
    assert not (tmp_path / "made").exists()
    play_pnnx(monkeypatch, stand_in_program(tmp_path / "pnnx", ()))
    with pytest.raises(UserError, match="pnnx did not write model.ncnn.param"):
        write_ncnn(trace, tmp_path / "made", METADATA, None)
    with pytest.raises(UserError, match="could not start .*absent: No such file"):
        run_program([tmp_path / "absent"], tmp_path)
    monkeypatch.setitem(sys.modules, "pnnx", None)
    with pytest.raises(
        UserError, match="--include ncnn needs pnnx; install it: pip install pnnx=="
    ):
        write_ncnn(trace, tmp_path / "other", METADATA, None)


# A program that starts another, which holds its output too, and waits for it.
TWO = "sleep 300 & echo $! > child; wait"
STARTER = """
import sys
from pathlib import Path
from duet.utils.optional import run_program
from duet.utils.processes.command import run_command
from duet.utils.processes.start import ending_at_termination
def main():
    with ending_at_termination():
        run_program(["/bin/sh", "-c", sys.argv[1]], Path(sys.argv[2]))
run_command(main)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_export_leaves_no_program_running(tmp_path, number):
    later = f"sleep 1; {TWO}"  # when the starter waits for it
    starter = subprocess.Popen([sys.executable, "-c", STARTER, later, tmp_path], cwd=PROJECT)
    child = tmp_path / "child"
    wait_until(lambda: child.exists() and child.read_text().endswith("\n"))
    starter.send_signal(number)
    assert starter.wait(SECONDS) == 128 + number
    wait_until(lambda: has_ended(child.read_text().strip()))


def interpreter(model_content: bytes, num_threads: int | None) -> MagicMock:
    """LiteRT's, which doubles images."""
    if not model_content.startswith(b"content of model_float32.tflite"):
        raise ValueError("Model provided has model identifier 'xxxx', should be 'TFL3'")
    net = MagicMock()
    for details, index in ((net.get_input_details, 0), (net.get_output_details, 1)):
        details.return_value = [{"index": index, "dtype": np.float32}]
    net.get_tensor.side_effect = lambda index: rows_of(
        net.set_tensor.call_args[0][1].transpose(0, 3, 1, 2)
    )
    return net


@pytest.fixture
def litert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in program onnx2tf, on the PATH, and the interpreter."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    module = SimpleNamespace(Interpreter=interpreter)
    monkeypatch.setitem(sys.modules, "ai_edge_litert", SimpleNamespace(interpreter=module))
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", module)
    return stand_in_program(tmp_path / "bin" / "onnx2tf", ("made/model_float32.tflite",))


def test_onnx2tf_writes_a_file_that_litert_runs(tmp_path, litert, trace):
    made = tmp_path / "made.tflite"
    write_litert(trace, made, METADATA, None)
    assert arguments_of(litert) == ["-i", "model.onnx", "-o", "made", "-n"]
    with zipfile.ZipFile(made) as archive:
        assert archive.read("metadata.json").decode() == metadata_as_json(METADATA)
    runtime, images = LiteRtRuntime(made), random_images()
    assert runtime.metadata == METADATA
    np.testing.assert_array_equal(runtime(images)[0], rows_of(images))
    again = tmp_path / "again.tflite"
    write_litert(trace, again, METADATA, None)
    assert again.read_bytes() == made.read_bytes()


def test_damaged_litert_file_is_a_clear_error(tmp_path, litert, trace):
    made, copy = tmp_path / "made.tflite", tmp_path / "copy.tflite"
    write_litert(trace, made, METADATA, None)
    content = made.read_bytes()
    for damaged in (b"", content[:40], content[:-30]):
        copy.write_bytes(damaged)
        with pytest.raises(UserError, match="damaged, or it holds no metadata"):
            LiteRtRuntime(copy)
    copy.write_bytes(b"damaged " + content)
    with pytest.raises(UserError, match="LiteRT cannot read it: .*TFL3"):
        LiteRtRuntime(copy)


# TensorRT, with a stand-in for a GPU too, which no test machine has.


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
    one.parse.side_effect = lambda content: content == b"trace"
    one.get_error.return_value = "In node 7: no such operator"
    one.build_serialized_network.return_value = b"the engine"
    one.deserialize_cuda_engine.side_effect = lambda x: one if x == b"the engine" else None
    one.get_tensor_shape.side_effect = SHAPES.get
    one.set_tensor_address.side_effect = addresses.__setitem__
    one.execute_async_v3.side_effect = execute
    monkeypatch.setitem(sys.modules, "tensorrt", one)
    return one


def test_tensorrt_engine_is_built_and_run(tmp_path, tensorrt, cuda, trace):
    write_engine(trace, tmp_path / "made", METADATA, None)
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


def test_tensorrt_error_is_reported(tmp_path, tensorrt, trace):
    tensorrt.build_serialized_network.return_value = None
    with pytest.raises(UserError, match="could not build an engine"):
        write_engine(trace, tmp_path / "made", METADATA, None)
    trace.write_bytes(b"other")
    with pytest.raises(UserError, match="cannot read the graph: 'In node 7: no such operator'"):
        write_engine(trace, tmp_path / "made", METADATA, None)
    assert not (tmp_path / "made").exists()
