"""Commands with --backend onnx: what runs a model works, what trains is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import val
from duet.utils.project import PROJECT
from tests.small import write_small_dataset
from tests.tiny_weights import CLASS_NAMES, write_tiny_weights

TRAINING = "backend 'onnx' is inference-only; choose one that supports training: torch, oneflow"
ONE_PROCESS = "2 processes need a backend that supports training, unlike 'onnx'"


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script, *arguments],
        cwd=PROJECT,
        env={**os.environ, "YOLO_BACKEND": "onnx"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    return write_tiny_weights(folder), write_small_dataset(folder, CLASS_NAMES)


@pytest.mark.parametrize(
    ("script", "flags", "message"),
    [
        ("train.py", ("--cfg", "models/yolov5n.yaml"), TRAINING),
        ("val.py", ("--nproc", "2", "--device", "cpu"), ONE_PROCESS),
    ],
    ids=["train", "ranks"],
)
def test_unsupported_flags_are_refused_before_anything_is_written(
    inputs, tmp_path, script, flags, message
) -> None:
    weights = ("--weights", inputs[0]) if script == "val.py" else ()
    done = run(script, *flags, *weights, "--project", tmp_path / "runs")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_val_matches_the_bound_framework(inputs, tmp_path, monkeypatch, capsys) -> None:
    weights, data = inputs
    flags = [
        "--weights", weights, "--data", data, "--img", "64", "--device", "cpu", "--batch", "4",
        "--workers", "0", "--project", tmp_path,
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["val.py", *map(str, flags)])
    val.main()
    wanted, _, _ = capsys.readouterr().out.partition("6 images in")
    done = run("val.py", *flags)
    assert done.returncode == 0, done.stderr
    assert "mAP50-95" in wanted and wanted in done.stdout and "ONNX Runtime" in done.stdout
