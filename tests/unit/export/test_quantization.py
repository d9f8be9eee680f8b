"""A recorded graph in 8 bits, run by ONNX Runtime beside the one in float32."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest

from duet.utils.errors import UserError
from duet.utils.export.formats import format_named
from duet.utils.export.metadata import Metadata
from duet.utils.export.quantization import (
    ONNX_RUNTIME,
    OPENVINO,
    Calibration,
    Layout,
    find_ranges,
    quantize,
)
from tests.export.every_kind import change_constant, write_graphs
from tests.onnx_files import NODE, constant, make_file, run_graph, write_doubling
from tests.small import CLASS_NAMES, STRIDE, noise, write_tiny_weights

SIDE = 64
GRAPHS = {
    "fixed": (),
    "batch": ("--batch-size", "2"),
    "dynamic": ("--dynamic",),
    "oldest": ("--opset", "13"),
    "newest": ("--opset", "21"),
    "boxes": ("--nms",),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("graphs")
    common = ["--weights", str(write_tiny_weights(folder)), "--imgsz", str(SIDE)]
    return write_graphs(folder, {name: [*common, *flags] for name, flags in GRAPHS.items()})


def pictures(batch: int = 1, number: int = 4) -> Calibration:
    """What yields batches (B, 3, H, W) of coloured blocks."""

    def images() -> Iterator[np.ndarray]:
        for index in range(number):
            yield inputs(batch, first_seed=index)

    return images


def inputs(batch: int = 1, height: int = SIDE, width: int = SIDE, first_seed: int = 9) -> Any:
    images = [noise(height, width, first_seed + index) for index in range(batch)]
    return np.stack(images).transpose(0, 3, 1, 2) / np.float32(255)


@pytest.mark.parametrize("name", ["fixed", "batch", "dynamic", "oldest", "newest"])
def test_quantized_rows_stay_near_float32(graphs: dict[str, Path], name: str) -> None:
    batch = 2 if name == "batch" else 1
    model = quantize(graphs[name], pictures(batch))
    images = inputs(batch)
    (expected,) = run_graph(graphs[name].read_bytes())(images)
    (found,) = run_graph(model)(images)
    assert found.shape == expected.shape
    # The largest map is 8 bits of a range of about 10: steps of 0.04. The gains of the weights
    # multiply them by up to 2,000, so that a score may flip, but few do.
    assert np.median(np.abs(found - expected)[..., 4:]) < 0.02
    assert np.abs(found - expected)[..., 4:].mean() < 0.1
    assert np.abs(found - expected).max() > 0, "nothing was quantized"


@pytest.mark.parametrize("layout", [ONNX_RUNTIME, OPENVINO])
def test_quantizing_without_an_inner_convolution_is_refused(tmp_path: Path, layout: Layout) -> None:
    nodes = [
        NODE("Conv", ["images", "w"], ["first"], "first"),
        NODE("Sigmoid", ["first"], ["active"], "active"),
        NODE("Conv", ["active", "w"], ["out0"], "last"),
    ]
    weight = constant("w", np.ones((3, 3, 1, 1), np.float32))
    shape = 1, 3, SIDE, SIDE
    path = make_file(tmp_path / "small.onnx", nodes, [weight], shape, [shape])
    with pytest.raises(UserError, match="--int8: .* no convolution between its first and its last"):
        quantize(path, pictures(), layout)


def test_equal_images_give_equal_quantized_bytes(graphs: dict[str, Path]) -> None:
    first, second = (quantize(graphs["fixed"], pictures()) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )


def test_nms_stays_in_float32(graphs: dict[str, Path]) -> None:
    model, images = quantize(graphs["boxes"], pictures()), inputs().astype(np.float32)
    assert sum(node.op_type == "DequantizeLinear" for node in model.graph.node) >= 5
    found, expected = (run_graph(x)(images) for x in (model, graphs["boxes"].read_bytes()))
    assert [output.shape for output in found] == [output.shape for output in expected]


def test_openvino_int8_weights_predict_nearly_the_same(
    graphs: dict[str, Path], tmp_path: Path
) -> None:
    row, metadata = format_named("openvino"), Metadata(CLASS_NAMES, STRIDE, (SIDE, SIDE))
    found = []
    for name, images in (("exact", None), ("coarse", pictures())):
        folder = tmp_path / name
        row.convert(graphs["fixed"], folder, metadata, images)
        found.append(row.open(folder, 1)(inputs().astype(np.float32))[0])
    assert 0 < np.abs(found[1] - found[0])[..., 4:].mean() < 0.1
    constants = openvino.Core().read_model(tmp_path / "coarse" / "model.xml").get_ops()
    whole = [x for x in constants if x.get_type_name() == "Constant" and
             x.get_element_type() == openvino.Type.i8]  # fmt: skip
    assert sum(len(x.get_output_shape(0)) == 4 for x in whole) == 7


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_map_with_nan_is_an_error(graphs: dict[str, Path], tmp_path: Path, value: float) -> None:
    path = Path(shutil.copy(graphs["fixed"], tmp_path))
    change_constant(path, "model.1.conv.weight", lambda array: array.put(0, value))
    with pytest.raises(UserError, match="not finite"):
        quantize(path, pictures())


def test_map_ranges_match_numpy_without_far_outliers(tmp_path: Path) -> None:
    shape = 1, 3, 50, 50
    lines = [np.linspace(low, high, 7500, dtype=np.float32) for low, high in ((-1, 3), (-2, 1))]
    lines[0][70] = 1000
    arrays = [line.reshape(shape) for line in lines * 30]
    graph = onnx.load(write_doubling(tmp_path / "a.onnx", dynamic=True))
    ranges = dict(find_ranges(graph, ["images", "product"], lambda: iter(arrays)))
    # 30 of 450,000 are far away: more than are left out.
    assert ranges["images"] == pytest.approx((-2, 1000), abs=1e-3)
    few = [lines[1].reshape(shape)] * 60 + arrays[:1]  # one of 457,500
    ranges = dict(find_ranges(graph, ["images", "product"], lambda: iter(few)))
    assert ranges["images"] == pytest.approx((-2, 3), abs=2e-2)
    assert ranges["product"] == pytest.approx((-4, 6), abs=4e-2)
