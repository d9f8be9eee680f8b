"""export.py writes and verifies the formats whose runtimes are installed with us."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backend import autograd, device, ops
from models.export.job import run_export
from models.export.traced import write_trace
from models.inference.predictor import load_detector
from tests.tiny_weights import write_tiny_weights
from utils.cli.export_config import ExportConfig
from utils.export.formats import format_named
from utils.runtimes.metadata import Metadata
from utils.weights.load import load_weights

SIZE = (64, 96)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_weights(tmp_path_factory.mktemp("weights"))


def test_openvino_and_torchscript_are_written_and_verified(weights, capsys):
    has_torchscript = device.supports("torchscript")
    config = ExportConfig(str(weights), include=("openvino", "torchscript"), sizes=SIZE)
    failed = run_export(config, load_weights(str(weights)), None)
    output = capsys.readouterr()
    assert "OpenVINO: " in output.out and "matched" in output.out
    assert (weights.parent / "tiny0_openvino_model" / "model.bin").stat().st_size > 1000
    made = weights.parent / "tiny0.torchscript"
    assert (failed, made.exists()) == (0 if has_torchscript else 1, has_torchscript)
    if not has_torchscript:
        assert "needs TorchScript, which only PyTorch has; give --backend torch" in output.err


@pytest.mark.skipif(not device.supports("torchscript"), reason="PyTorch's alone")
def test_a_trace_computes_exactly_what_the_folded_model_does(weights, tmp_path):
    checkpoint = load_weights(str(weights))
    metadata = Metadata(checkpoint.header.class_names, 16, SIZE, batch_size=2)
    write_trace(load_detector(checkpoint, "cpu"), metadata, tmp_path / "trace.pt")
    runtime = format_named("torchscript").open(tmp_path / "trace.pt", None)
    assert runtime.metadata == metadata
    images = np.random.default_rng(0).random((2, 3, *SIZE), np.float32)
    folded = load_detector(checkpoint, "cpu", fold=True)
    with autograd.no_grad():
        expected = ops.to_numpy(folded.decode(folded(ops.tensor(images))))
    np.testing.assert_allclose(runtime(images)[0], expected, rtol=1e-6, atol=1e-6)
