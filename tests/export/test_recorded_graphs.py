"""Graphs compute what the model computes, in every form that flags can ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from duet.backend import nn, ops
from duet.models.detector import Detector
from tests.export.random_weights import write_random_weights
from tests.export.recorded_files import MODULES, write_graphs
from tests.export.small_graphs import onnx, onnxruntime
from tests.small import write_tiny_model

# Of the largest value. Convolutions of a framework and of ONNX Runtime add in another order, each
# time with an error of 6e-8; what these models showed was at most 1e-6.
TOLERANCE = 1e-5
HALF_TOLERANCE = 1e-2  # as above, with an error of 5e-4 each time; these models showed 1e-3
NARROW = 0.125
MODELS = {
    "yolov5n": "models/yolov5n.yaml",
    "yolov3-tiny": "models/hub/yolov3-tiny.yaml",  # it pads by zeros before a pooling
    "attention": "models/hub/yolov5s-transformer.yaml",
    "ghost": "models/hub/yolov5s-ghost.yaml",
    "p6": "models/hub/yolov5n6.yaml",
}
STATIC = ("yolov5n static", "yolov3-tiny static", "tiny static --batch-size=2")
LARGE = "tiny static --imgsz=1024"  # with maps of more than `models.blocks.conv.LARGE_MAP`
DYNAMIC = tuple(
    f"{name} dynamic" for name in ("yolov5n", "yolov3-tiny", "attention", "ghost", "p6", "grey")
)
HALF = "yolov5n half"
OPSETS = {13: 7, 14: 7, 15: 8, 17: 8, 18: 8, 19: 9, 21: 10}  # with the oldest format that has it
Shape = tuple[int, int, int]  # images, height, width


class Written:
    """Models, and graphs of them, written by one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models = {
            name: nn.frozen_copy(write_random_weights(cfg, self.weights(name), NARROW))
            for name, cfg in MODELS.items()
        }
        for name, cfg in (("tiny", write_tiny_model(folder)), ("grey", grey_model(folder))):
            self.models[name] = nn.frozen_copy(write_random_weights(str(cfg), self.weights(name)))
        names = [*STATIC, LARGE, *DYNAMIC, HALF, *(of_opset(opset) for opset in OPSETS)]
        self.files = write_graphs(folder, {name: self.flags(name) for name in names})

    def weights(self, model: str) -> Path:
        return self.folder / f"{model}.safetensors"

    def flags(self, name: str) -> list[str]:
        model, form, *others = name.split()
        forms = {"static": [], "dynamic": ["--dynamic"], "half": ["--half"]}
        return [f"--weights={self.weights(model)}", "--imgsz=64", *forms[form], *others]

    def rows(self, name: str, shapes: Sequence[Shape]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """What a graph and its model make of images."""
        session = onnxruntime.InferenceSession(self.files[name])
        for batch, *sides in shapes:
            images = np.random.default_rng(0).random((batch, 3, *sides), np.float32)
            (found,) = session.run(None, {"images": images})
            yield found, rows_of(self.models[name.split()[0]], images)


def of_opset(opset: int) -> str:
    return f"tiny dynamic --opset={opset}"


def grey_model(folder: Path) -> Path:
    """The smallest model, for images of one channel, with another activation."""
    document = yaml.safe_load(write_tiny_model(folder).read_text(encoding="utf-8"))
    path = folder / "grey_model.yaml"
    path.write_text(yaml.safe_dump(document | {"ch": 1, "act": "nn.LeakyReLU(0.1)"}))
    return path


def rows_of(model: Detector, images: np.ndarray) -> np.ndarray:
    return ops.to_numpy(model.decode(model(ops.tensor(images))))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("graphs"))


@pytest.fixture(scope="module")
def protos(written: Written) -> Mapping[str, Any]:
    return {name: onnx.load(path) for name, path in written.files.items()}


def assert_near(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    """Boxes relative to the largest number of them, scores as they are."""
    assert found.dtype == np.float32 and found.shape == wanted.shape
    sides = np.abs(wanted[..., :4]).max()
    assert np.abs(found[..., :4] - wanted[..., :4]).max() <= tolerance * sides
    assert np.abs(found[..., 4:] - wanted[..., 4:]).max() <= tolerance


@pytest.mark.parametrize("name", STATIC)
def test_a_static_graph_returns_the_rows_of_its_model(written: Written, name: str) -> None:
    batch = 2 if "batch" in name else 1
    for found, wanted in written.rows(name, [(batch, 64, 64)]):
        assert_near(found, wanted, TOLERANCE)


def test_a_graph_of_large_maps_returns_the_rows_of_its_model(written: Written) -> None:
    for found, wanted in written.rows(LARGE, [(1, 1024, 1024)]):
        assert_near(found, wanted, TOLERANCE)


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_dynamic_graph_takes_other_sizes_and_batches(written: Written, name: str) -> None:
    stride = written.models[name.split()[0]].stride
    shapes = [(1, 2 * stride, stride), (2, stride, 3 * stride), (3, stride, stride)]
    for found, wanted in written.rows(name, shapes):
        assert_near(found, wanted, TOLERANCE)


def test_half_precision_is_near_and_comes_back_in_float32(written: Written) -> None:
    for found, wanted in written.rows(HALF, [(1, 64, 64)]):
        assert_near(found, wanted, HALF_TOLERANCE)
        assert np.abs(found - wanted).max() > 1e-6  # it did compute in another precision


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_gives_the_same_rows(written: Written, opset: int) -> None:
    for found, wanted in written.rows(of_opset(opset), [(2, 32, 48)]):
        assert_near(found, wanted, TOLERANCE)


def test_each_opset_has_the_oldest_format_that_knows_it(protos: Mapping[str, Any]) -> None:
    for opset, version in OPSETS.items():
        proto = protos[of_opset(opset)]
        assert [(x.domain, x.version) for x in proto.opset_import] == [("", opset)]
        assert proto.ir_version == version


def test_graphs_are_what_the_specification_says(protos: Mapping[str, Any]) -> None:
    for proto in protos.values():
        onnx.checker.check_model(proto, full_check=True)  # with shapes, strictly


def test_parameters_have_the_names_of_weights_files(
    protos: Mapping[str, Any], written: Written
) -> None:
    model = written.models["yolov5n"]
    convolutions = {
        name.replace(".bn.", ".conv.")  # the bias that BatchNorm becomes
        for name in nn.state_arrays(model)
        if name.endswith((".conv.weight", ".bn.bias", ".m.0.weight", ".m.0.bias"))
    }
    for form in ("static", "dynamic", "half"):
        names = {x.name for x in protos[f"yolov5n {form}"].graph.initializer}
        assert convolutions <= names


def test_the_process_needs_no_framework(written: Written) -> None:
    imported = json.loads((written.folder / MODULES).read_text())
    assert "onnx" in imported
    assert not {"torch", "oneflow"} & set(imported)
