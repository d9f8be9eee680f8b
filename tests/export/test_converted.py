"""export.py writes and verifies the formats whose runtimes are installed with us."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend import device
from models.export.job import run_export
from tests.tiny_weights import write_tiny_weights
from utils.cli.export_config import ExportConfig
from utils.weights.load import load_weights

SIZE = (64, 96)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_weights(tmp_path_factory.mktemp("weights"))


def test_openvino_and_torchscript_are_written_and_verified(weights, capsys):
    has_torchscript = device.supports("torchscript")
    include = ("openvino", "torchscript") if has_torchscript else ("openvino",)
    config = ExportConfig(str(weights), include=include, sizes=SIZE)
    failed = run_export(config, load_weights(str(weights)), None)
    output = capsys.readouterr()
    assert "OpenVINO: " in output.out and "matched" in output.out
    assert (weights.parent / "tiny0_openvino_model" / "model.bin").stat().st_size > 1000
    made = weights.parent / "tiny0.torchscript"
    assert (failed, made.exists()) == (0, has_torchscript)
