"""Formats whose converters and runtimes are not installed with us, with stand-ins for these."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.export.litert import LiteRtRuntime, write_litert
from duet.utils.export.metadata import metadata_as_json
from duet.utils.export.ncnn import NcnnRuntime, write_ncnn
from duet.utils.optional import run_program
from duet.utils.project import PROJECT
from tests.unit.export.doubling import METADATA, random_images, rows_of

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


class Net:
    """Stands in for ncnn.Net and its extractor."""

    def __init__(self) -> None:
        self.opt = SimpleNamespace()

    def load_param(self, path: str) -> int:
        return -1 if b"damaged" in Path(path).read_bytes() else 0

    def load_model(self, path: str) -> int:
        return 0

    def input_names(self) -> list[str]:
        return ["in0"]

    def output_names(self) -> list[str]:
        return ["out0"]

    def create_extractor(self) -> Net:
        return self

    def __enter__(self) -> Net:
        return self

    def __exit__(self, *error: object) -> None: ...

    def input(self, name: str, image: np.ndarray) -> None:
        self.image = image

    def extract(self, name: str) -> tuple[int, np.ndarray]:
        return 0, rows_of(self.image[None])[0]


def test_pnnx_makes_the_files_of_ncnn_and_ncnn_runs_them(tmp_path, monkeypatch, trace):
    program = stand_in_program(tmp_path / "pnnx", ("model.ncnn.param", "model.ncnn.bin"))
    play_pnnx(monkeypatch, program)
    monkeypatch.setitem(
        sys.modules, "ncnn", SimpleNamespace(Net=Net, Mat=np.asarray, __version__="1.0")
    )
    write_ncnn(trace, tmp_path / "made", METADATA, None)
    assert arguments_of(program) == ["model.pt", "inputshape=[1,3,32,32]", "fp16=0"]
    names = ["metadata.json", "model.ncnn.bin", "model.ncnn.param"]
    assert sorted(os.listdir(tmp_path / "made")) == names
    runtime, images = NcnnRuntime(tmp_path / "made", threads=2), random_images()
    assert (runtime.metadata, runtime.name) == (METADATA, "ncnn 1.0, CPU")
    np.testing.assert_array_equal(runtime(images)[0], rows_of(images))
    _assert_ncnn_refuses_what_is_damaged(tmp_path / "made")


def _assert_ncnn_refuses_what_is_damaged(folder: Path) -> None:
    (folder / "metadata.json").write_text("[")
    with pytest.raises(UserError, match="metadata.json is no JSON"):
        NcnnRuntime(folder)
    (folder / "metadata.json").write_text(metadata_as_json(METADATA))
    (folder / "model.ncnn.param").write_text("damaged")
    with pytest.raises(UserError, match="ncnn cannot read it"):
        NcnnRuntime(folder)
    (folder / "model.ncnn.bin").unlink()
    with pytest.raises(UserError, match="lacks model.ncnn.bin"):
        NcnnRuntime(folder)


def test_a_program_that_fails_makes_nothing_or_is_absent(tmp_path, monkeypatch, trace):
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
SECONDS = 60  # far more than a process needs to begin or end


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(SECONDS * 100):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it has not come to that")


def is_alive(folder: Path) -> bool:
    return Path("/proc", (folder / "child").read_text().strip(), "exe").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_of_a_program_outlives_an_export_that_is_ended(tmp_path, number):
    later = f"sleep 1; {TWO}"  # when the starter waits for it
    starter = subprocess.Popen([sys.executable, "-c", STARTER, later, tmp_path], cwd=PROJECT)
    child = tmp_path / "child"
    wait_until(lambda: child.exists() and child.read_text().endswith("\n"))
    starter.send_signal(number)
    assert starter.wait(SECONDS) == 128 + number
    wait_until(lambda: not is_alive(tmp_path))


class Interpreter:
    """Stands in for LiteRT's."""

    dtype, fault = np.float32, ""

    def __init__(self, model_content: bytes, num_threads: int | None) -> None:
        if not model_content.startswith(b"content of model_float32.tflite"):
            raise ValueError("Model provided has model identifier 'xxxx', should be 'TFL3'")

    def allocate_tensors(self) -> None: ...

    def get_input_details(self) -> list[dict[str, Any]]:
        return [{"index": 0, "dtype": self.dtype}]

    def get_output_details(self) -> list[dict[str, Any]]:
        return [{"index": 1, "dtype": np.float32}]

    def set_tensor(self, index: int, images: np.ndarray) -> None:
        self.images = images

    def invoke(self) -> None:
        if self.fault:
            raise RuntimeError(self.fault)

    def get_tensor(self, index: int) -> np.ndarray:
        return rows_of(self.images.transpose(0, 3, 1, 2))


@pytest.fixture
def litert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in program onnx2tf, on the PATH, and the interpreter."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    interpreter = SimpleNamespace(Interpreter=Interpreter)
    monkeypatch.setitem(sys.modules, "ai_edge_litert", SimpleNamespace(interpreter=interpreter))
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", interpreter)
    return stand_in_program(tmp_path / "bin" / "onnx2tf", ("made/model_float32.tflite",))


def test_onnx2tf_makes_a_file_with_metadata_and_litert_runs_it(tmp_path, litert, trace):
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


def test_a_damaged_litert_file_is_a_clear_error(tmp_path, litert, trace):
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


# What a library has against a model is a message, so that other formats follow.
