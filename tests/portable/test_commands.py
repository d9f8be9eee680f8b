"""Commands in a Python that lacks what Windows or macOS lacks; not these systems themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from duet.backend import use
from duet.utils.project import PROJECT
from tests.small import write_small_dataset, write_tiny_model
from tests.tiny_weights import CLASS_NAMES, write_tiny_weights

pytestmark = pytest.mark.skipif(use() == "oneflow", reason="OneFlow runs on Linux alone")
EMULATED = Path(__file__).parent / "emulated"
FLAGS = ("--img", 64, "--backend", use())
TRAIN = ("train", "--data", "shapes/shapes.yaml", "--weights", "", "--cfg", "tiny.yaml",
         "--epochs", 1, "--batch", 4, *FLAGS)  # fmt: skip
COMMANDS = {
    "check": ("check", "--data", "shapes/shapes.yaml"),
    "detect": ("detect", "--weights", "tiny0.safetensors", "--source", "shapes/images/val",
               "--device", "cpu", "--save-txt", *FLAGS),
    "val": ("val", "--weights", "tiny0.safetensors", "--data", "shapes/shapes.yaml", *FLAGS),
    "train": (*TRAIN, "--workers", 0),
    "train with workers": (*TRAIN, "--workers", 2),
    "export": ("export", "--weights", "tiny0.safetensors", "--include", "onnx", *FLAGS),
}  # fmt: skip
HELPED = ("train", "val", "detect", "export", "compare", "check", "audit", "records", "fetch",
          "serve", "weights", "doctor")  # fmt: skip
# Text that is opened in the encoding of the system, which is not UTF-8 on Windows, is named.
WARNINGS = {"PYTHONWARNDEFAULTENCODING": "1", "PYTHONWARNINGS": "always::EncodingWarning"}
# What does not run yet, and why.
NOT_YET: dict[tuple[str, str], str] = {}


def run(folder: Path, system: str, *words: object) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(map(str, (EMULATED, PROJECT)))
    environment = {**os.environ, "PYTHONPATH": paths, "EMULATED_SYSTEM": system, **WARNINGS}
    return subprocess.run(
        [sys.executable, "-m", "duet", *map(str, words)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_small_dataset(folder, CLASS_NAMES)
    write_tiny_model(folder)
    write_tiny_weights(folder)
    return folder


@pytest.mark.parametrize("system", ["windows", "macos"])
@pytest.mark.parametrize("name", HELPED)
def test_the_help_is_shown(folder: Path, system: str, name: str) -> None:
    done = run(folder, system, name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: duet {name}")


@pytest.mark.parametrize("system", ["windows", "macos"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_runs(
    folder: Path, system: str, name: str, request: pytest.FixtureRequest
) -> None:
    if reason := NOT_YET.get((system, name)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    done = run(folder, system, *COMMANDS[name])
    assert done.returncode == 0, done.stderr[-3000:]
    warned = [line for line in done.stderr.splitlines() if "EncodingWarning" in line]
    assert [line for line in warned if "site-packages" not in line] == []
    if (system, name) == ("windows", "train with workers"):
        assert "--workers 2: loader workers do not run on Windows; using 0" in done.stdout
