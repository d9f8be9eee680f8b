"""Files in 8 bits, written by the formats and run by their runtimes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openvino
import pytest

from tests.export.recorded_files import write_graphs
from tests.tiny_weights import CLASS_NAMES, STRIDE, noise, write_tiny_weights
from utils.errors import UserError
from utils.export.formats import format_named
from utils.export.metadata import Metadata
from utils.export.opening import open_runtime

SIDE = 64
METADATA = Metadata(CLASS_NAMES, STRIDE, (SIDE, SIDE), precision="int8")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    flags = ["--weights", str(write_tiny_weights(folder)), "--imgsz", str(SIDE)]
    return write_graphs(folder, {"graph": flags})["graph"]


def pictures() -> Iterator[np.ndarray]:
    for index in range(4):
        yield noise(SIDE, SIDE, index).transpose(2, 0, 1)[None] / np.float32(255)


@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_file_in_8_bits_predicts_nearly_what_one_in_float32_does(
    graph: Path, tmp_path: Path, name: str
) -> None:
    row = format_named(name)
    exact, coarse = (tmp_path / f"{kind}{row.ending}" for kind in ("exact", "coarse"))
    row.convert(graph, exact, METADATA, None)
    row.convert(graph, coarse, METADATA, pictures)
    image = noise(SIDE, SIDE, 9).transpose(2, 0, 1)[None] / np.float32(255)
    runtimes = [open_runtime(path) for path in (exact, coarse)]
    expected, found = (runtime(image)[0] for runtime in runtimes)
    assert found.shape == expected.shape and found.dtype == np.float32
    # The weights are made so that scores lie far apart: some flip, most do not.
    assert 0 < np.abs(found - expected)[..., 4:].mean() < 0.1
    assert runtimes[1].metadata == METADATA


def test_openvino_keeps_weights_in_8_bits(graph: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny_openvino_model"
    format_named("openvino").convert(graph, path, METADATA, pictures)
    model = openvino.Core().read_model(path / "model.xml")
    constants = [op for op in model.get_ops() if op.get_type_name() == "Constant"]
    whole = [op for op in constants if op.get_element_type() == openvino.Type.i8]
    assert sum(len(op.get_output_shape(0)) == 4 for op in whole) == 7  # as test_quantization.py


def test_failed_calibration_leaves_no_file(graph: Path, tmp_path: Path) -> None:
    def infinite() -> Iterator[np.ndarray]:
        yield np.full((1, 3, SIDE, SIDE), np.inf, np.float32)

    for name in ("onnx", "openvino"):
        row = format_named(name)
        with pytest.raises(UserError, match="not finite"):
            row.convert(graph, tmp_path / f"w{row.ending}", METADATA, infinite)
    assert list(tmp_path.iterdir()) == []
