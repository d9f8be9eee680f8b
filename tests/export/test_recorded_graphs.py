"""Graphs compute what the model does, with every flag; NMS in the graph does what ours does."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from tests.export.every_kind import MODULES, write_graphs
from tests.onnx_files import run_graph, small_graph
from tests.small import TINY, initial_model, untrained

# Of the largest value. Convolutions of a framework and of ONNX Runtime add in another order, each
# time with an error of 6e-8; what these models showed was at most 1e-6.
TOLERANCE = 1e-5
MODELS = {
    "yolov5n": "models/yolov5n.yaml",
    "yolov3-tiny": "models/hub/yolov3-tiny.yaml",  # it pads by zeros before a pooling
    "attention": "models/hub/yolov5s-transformer.yaml",
    "ghost": "models/hub/yolov5s-ghost.yaml",
    "p6": "models/hub/yolov5n6.yaml",
}
LARGE = "tiny --imgsz=1024"  # with maps of more than `models.blocks.yolov5.LARGE_MAP`
# A model, and flags.
GRAPHS = (
    "yolov5n", "yolov3-tiny", "tiny --batch-size=2", LARGE,
    *(f"{name} --dynamic" for name in (*MODELS, "grey")),
)  # fmt: skip
# With the oldest format that has it.
OPSETS = {f"tiny --dynamic --opset={opset}": version for opset, version in (
    (13, 7), (14, 7), (15, 8), (17, 8), (18, 8), (19, 9), (21, 10))}  # fmt: skip


def documents() -> dict[str, dict[str, Any]]:
    """Narrow public models, and the smallest one, also for images of one channel."""
    public = {
        name: yaml.safe_load(Path(cfg).read_text(encoding="utf-8")) | {"width_multiple": 0.125}
        for name, cfg in MODELS.items()
    }
    tiny = yaml.safe_load(TINY)
    return {**public, "tiny": tiny, "grey": tiny | {"ch": 1, "act": "nn.LeakyReLU(0.1)"}}


def write_random_weights(document: dict[str, Any], path: Path) -> Detector:
    """Write weights for two classes; return their model.

    What BatchNorm learns is drawn, so that maps keep their size and no layer is without effect.
    """
    path.with_suffix(".yaml").write_text(yaml.safe_dump(document))
    model, random = initial_model(path.with_suffix(".yaml"), 1, 2), np.random.default_rng(2)
    arrays = nn.state_arrays(model)
    ranges = {"weight": (0.7, 1.3), "bias": (-0.5, 0.5), "running_mean": (-0.2, 0.2),
              "running_var": (0.15, 0.25)}  # fmt: skip
    for name, array in arrays.items():
        _, is_norm, part = name.rpartition("bn.")
        if is_norm and part in ranges:
            arrays[name] = random.uniform(*ranges[part], array.shape).astype(np.float32)
    nn.load_state_arrays(model, arrays)
    save_checkpoint(path, untrained(model, ("a", "b")))
    return nn.frozen_copy(model)


class Written(NamedTuple):
    folder: Path
    models: Mapping[str, Detector]
    files: Mapping[str, Path]  # by the lines of GRAPHS and OPSETS


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder, models, flags = tmp_path_factory.mktemp("graphs"), {}, {}
    for name, document in documents().items():
        models[name] = write_random_weights(document, folder / f"{name}.safetensors")
    for line in (*GRAPHS, *OPSETS):
        name, *others = line.split()
        flags[line] = [f"--weights={folder}/{name}.safetensors", "--imgsz=64", *others]
    return Written(folder, models, write_graphs(folder, flags))


@pytest.mark.parametrize("line", [*GRAPHS, *OPSETS])
def test_recorded_graph_returns_the_model_rows(written: Written, line: str) -> None:
    """A dynamic one also for other sizes and batches."""
    model, side = written.models[line.split()[0]], 1024 if line == LARGE else 64
    shapes, stride = [(2 if "batch" in line else 1, side, side)], model.stride
    if "dynamic" in line:
        shapes = [(1, 2 * stride, stride), (2, stride, 3 * stride), (3, stride, stride)]
    session = onnxruntime.InferenceSession(written.files[line])
    for batch, *sides in shapes:
        images = np.random.default_rng(0).random((batch, 3, *sides), np.float32)
        (found,) = session.run(None, {"images": images})
        wanted = ops.to_numpy(model.decode(model(ops.tensor(images))))
        assert found.dtype == np.float32 and found.shape == wanted.shape
        # Boxes relative to the largest number of them, scores as they are.
        largest = np.where(np.arange(wanted.shape[-1]) < 4, np.abs(wanted[..., :4]).max(), 1)
        assert (np.abs(found - wanted) <= TOLERANCE * largest).all()


def test_recorded_graphs_follow_the_onnx_specification(written: Written) -> None:
    """Each opset in the oldest format that knows it."""
    for line, path in written.files.items():
        proto = onnx.load(path)
        onnx.checker.check_model(proto, full_check=True)  # with shapes, strictly
        if line in OPSETS:
            (opset,) = proto.opset_import
            assert line.endswith(f"={opset.version}") and opset.domain == ""
            assert proto.ir_version == OPSETS[line]


def test_recording_process_needs_no_framework(written: Written) -> None:
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


def run_nms(rows: np.ndarray, **settings: float) -> np.ndarray:
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
def test_graph_nms_decides_like_detect_at_the_threshold(iou_threshold, length):
    """Of these whole pixels the IoU is a threshold that float32 holds only nearly."""
    rows = [row((0, 0, length, 8), 0.75, 1.0), row((0, 0, length * iou_threshold, 8), 0.5, 1.0)]
    check_image(
        run_nms(np.array(rows), iou_threshold=iou_threshold),
        np.array(rows, np.float32),
        {"confidence_threshold": 0.25, "iou_threshold": iou_threshold, "max_detections": 5},
    )


def test_graph_iou_threshold_is_never_zero():
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
def test_graph_nms_of_crowded_boxes_matches_numpy(free, class_agnostic):
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
