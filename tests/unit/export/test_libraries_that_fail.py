"""What a converter's library has against a model is a message, so that other formats follow."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openvino
import pytest

from tests.doubling import METADATA, write_doubling
from utils.errors import UserError
from utils.export.coreml import write_coreml
from utils.export.openvino import write_openvino


def fail(*arguments: Any, **options: Any) -> None:
    raise RuntimeError("iostream error")


def test_a_full_disk_is_told_of_openvino(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = write_doubling(tmp_path / "graph.onnx")
    monkeypatch.setattr(openvino, "save_model", fail)
    text = "^OpenVINO cannot write the model: 'iostream error'; is the disk full"
    with pytest.raises(UserError, match=text):
        write_openvino(graph, tmp_path / "made", METADATA, None)


def test_a_graph_that_openvino_cannot_read_is_told(tmp_path: Path) -> None:
    graph = tmp_path / "graph.onnx"
    graph.write_bytes(b"no graph")
    with pytest.raises(UserError, match="^OpenVINO cannot write the model: "):
        write_openvino(graph, tmp_path / "made", METADATA, None)


def test_a_model_that_coremltools_cannot_convert_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = SimpleNamespace(
        convert=fail,
        precision=SimpleNamespace(FLOAT16=16, FLOAT32=32),
        target=SimpleNamespace(iOS15=15),
    )
    tools.TensorType = lambda *arguments, **options: None
    monkeypatch.setitem(sys.modules, "coremltools", tools)
    text = "^coremltools cannot convert or write the model: 'iostream error'"
    with pytest.raises(UserError, match=text):
        write_coreml(tmp_path / "trace.pt", tmp_path / "made", METADATA, None)
