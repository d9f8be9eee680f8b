"""Graphs compute what the model does, with every flag; NMS in the graph does what ours does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml

from duet.backend import nn, ops
from duet.models.detector import Detector
from duet.models.export.recorded import detections
from duet.utils.evaluation.nms import SuppressionSettings, non_max_suppression
from duet.utils.weights.checkpoint import save_checkpoint
from tests.export.recorded_files import MODULES, write_graphs
from tests.onnx_files import run_graph, small_graph
from tests.small import write_tiny_model
from tests.tiny_weights import initial_model, untrained

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
LARGE = "tiny static --imgsz=1024"  # with maps of more than `models.blocks.yolov5.LARGE_MAP`
DYNAMIC = tuple(
    f"{name} dynamic" for name in ("yolov5n", "yolov3-tiny", "attention", "ghost", "p6", "grey")
)
HALF = "yolov5n half"
OPSETS = {13: 7, 14: 7, 15: 8, 17: 8, 18: 8, 19: 9, 21: 10}  # with the oldest format that has it
Shape = tuple[int, int, int]  # images, height, width


def write_random_weights(cfg: str, path: Path, width: float | None = None) -> Detector:
    """Write weights of a model YAML for two classes; return their model, not folded.

    width: in place of the model's width_multiple.
    """
    document = yaml.safe_load(Path(cfg).read_text(encoding="utf-8"))
    copy = path.with_suffix(".yaml")
    copy.write_text(yaml.safe_dump(document | ({"width_multiple": width} if width else {})))
    model = initial_model(copy, 1, 2)
    arrays = _with_statistics(nn.state_arrays(model))
    nn.load_state_arrays(model, arrays)
    save_checkpoint(path, untrained(model, ("a", "b")))
    return model


def _with_statistics(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draw what BatchNorm learns, so that maps keep their size and no layer is without effect."""
    random = np.random.default_rng(2)
    ranges = {
        "bn.weight": (0.7, 1.3),
        "bn.bias": (-0.5, 0.5),
        "bn.running_mean": (-0.2, 0.2),
        "bn.running_var": (0.15, 0.25),
    }
    drawn = dict(arrays)
    for name, array in arrays.items():
        for ending, bounds in ranges.items():
            if name.endswith(ending):
                drawn[name] = random.uniform(*bounds, array.shape).astype(np.float32)
    return drawn


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


@pytest.mark.parametrize("name", [*STATIC, LARGE, *DYNAMIC, *map(of_opset, OPSETS)])
def test_a_graph_returns_the_rows_of_its_model(written: Written, name: str) -> None:
    """A dynamic one also for other sizes and batches."""
    stride, side = written.models[name.split()[0]].stride, 1024 if name == LARGE else 64
    shapes = [(2 if "batch" in name else 1, side, side)]
    if "dynamic" in name:
        shapes = [(1, 2 * stride, stride), (2, stride, 3 * stride), (3, stride, stride)]
    for found, wanted in written.rows(name, shapes):
        assert_near(found, wanted, TOLERANCE)


def test_half_precision_is_near_and_comes_back_in_float32(written: Written) -> None:
    for found, wanted in written.rows(HALF, [(1, 64, 64)]):
        assert_near(found, wanted, HALF_TOLERANCE)
        assert np.abs(found - wanted).max() > 1e-6  # it did compute in another precision


def test_each_opset_has_the_oldest_format_that_knows_it(protos: Mapping[str, Any]) -> None:
    for opset, version in OPSETS.items():
        proto = protos[of_opset(opset)]
        assert [(x.domain, x.version) for x in proto.opset_import] == [("", opset)]
        assert proto.ir_version == version


def test_graphs_are_what_the_specification_says(protos: Mapping[str, Any]) -> None:
    for proto in protos.values():
        onnx.checker.check_model(proto, full_check=True)  # with shapes, strictly


def test_the_process_needs_no_framework(written: Written) -> None:
    imported = json.loads((written.folder / MODULES).read_text())
    assert "onnx" in imported
    assert not {"torch", "oneflow"} & set(imported)


FREE = (0, 1)  # number of images and of rows, as with --dynamic


def nms_graph(
    shape: Sequence[int],
    free: Sequence[int] = (),
    top_per_class: int = 100,
    opset: int = 17,
    **settings: float,
) -> Any:
    wanted = {"confidence_threshold": 0.25, "iou_threshold": 0.5, "max_detections": 5, **settings}
    values = SuppressionSettings(multi_label=False, **wanted)
    return small_graph(
        lambda rows: (detections(rows, values, top_per_class),), shape, "float32", free, opset
    )


def found_in(rows: np.ndarray, **settings: float) -> np.ndarray:
    """Run NMS of the rows of one image, (N, 5 + C), through a graph; (K, 6)."""
    images = rows[None].astype(np.float32)
    return run_graph(nms_graph(images.shape, **settings))(images)[0][0]


def row(box_xyxy: Sequence[float], objectness: float, *classes: float) -> list[float]:
    """Return a row of a model: centre, size and scores."""
    left, top, right, bottom = box_xyxy
    centre = (left + right) / 2, (top + bottom) / 2
    return [*centre, right - left, bottom - top, objectness, *classes]


@pytest.mark.parametrize("iou_threshold", [0.45, 0.3, 0.6, 0.65, 0.7, 0.8, 0.5])
@pytest.mark.parametrize("length", [20, 140])
def test_at_the_threshold_itself_it_decides_as_detect_does(iou_threshold, length):
    """Of these whole pixels the IoU is a threshold that float32 holds only nearly."""
    rows = [row((0, 0, length, 8), 0.75, 1.0), row((0, 0, length * iou_threshold, 8), 0.5, 1.0)]
    check_image(
        found_in(np.array(rows), iou_threshold=iou_threshold),
        np.array(rows, np.float32),
        {"confidence_threshold": 0.25, "iou_threshold": iou_threshold, "max_detections": 5},
    )


def test_the_threshold_of_iou_is_never_zero():
    """OpenVINO removes a box whose IoU is the threshold: all that only touch, or lie apart."""
    model = nms_graph((1, 8, 7), iou_threshold=0.0)
    (node,) = (node for node in model.graph.node if node.op_type == "NonMaxSuppression")
    (stored,) = (x for x in model.graph.initializer if x.name == node.input[3])
    assert 0 < onnx.numpy_helper.to_array(stored)[0] < 1e-30


def crowded_rows(images: int, number: int, num_classes: int, seed: int) -> np.ndarray:
    """Return rows (B, N, 5 + C) that overlap a lot, with few different scores."""
    rng = np.random.default_rng(seed)
    centres, sizes = (
        rng.uniform(20, 80, (images, number, 2)),
        rng.uniform(4, 60, (images, number, 2)),
    )
    scores = rng.integers(0, 9, (images, number, 1 + num_classes)) / 8
    return np.concatenate((centres, sizes, scores), axis=2).astype(np.float32)


@pytest.mark.parametrize("class_agnostic", [False, True])
@pytest.mark.parametrize("free", [(), FREE])
def test_many_overlapping_boxes_are_those_of_numpy(free, class_agnostic):
    settings = {
        "confidence_threshold": 0.25,
        "iou_threshold": 0.45,
        "class_agnostic": class_agnostic,
        "max_detections": 60,
    }
    run = run_graph(nms_graph((4, 400, 5 + 12), free, **settings))
    images = crowded_rows(4, 400, 12, seed=7)
    images[2, :, 4] = 0  # nothing in the third
    found = run(images)[0]
    assert found.shape == (4, 60, 6)
    if free:
        more = np.concatenate((images, crowded_rows(4, 30, 12, seed=8)), axis=1)
        check_image(run(more[:2])[0][1], more[1], settings)
    for image, rows in zip(found, images, strict=True):
        check_image(image, rows, settings)


def check_image(found: np.ndarray, rows: np.ndarray, settings: dict[str, float]) -> None:
    wanted = non_max_suppression(rows, SuppressionSettings(multi_label=False, **settings))
    number = len(wanted.scores)
    np.testing.assert_array_equal(found[:number, :4], wanted.boxes_xyxy)
    np.testing.assert_array_equal(found[:number, 4], wanted.scores)
    np.testing.assert_array_equal(found[:number, 5], wanted.class_index)
    assert not found[number:].any()
