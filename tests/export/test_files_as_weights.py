"""Exported files as weights of detect.py, val.py and `duet.load`, for every task.

The model is a tiny one, its ONNX files are written once for all tests.
"""

import dataclasses
import json
import os
import subprocess
import sys

import cv2
import numpy as np
import onnx
import pytest

import duet
import hubconf
import val
from duet.models.export.exported import ExportedPredictor
from duet.models.export.job import metadata_for, output_kind
from duet.models.heads.classify.head import ClassifyHead
from duet.models.heads.mask.head import MaskHead
from duet.models.stored import load_detector
from duet.utils.errors import UserError
from duet.utils.export.config import parse_export_flags
from duet.utils.export.metadata import MASK_ROWS, MASKS
from duet.utils.export.onnx import write_onnx
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.project import PROJECT
from duet.utils.weights.load import load_weights
from tests.export.every_kind import write_graphs
from tests.onnx_files import shapes
from tests.small import CLASS_NAMES, noise, write_small_dataset, write_tiny_weights

FILES = {
    "static": ("--imgsz=64",),
    "wide": ("--imgsz", "64", "96"),
    "batch": ("--imgsz=64", "--batch-size=4"),
    "dynamic": ("--imgsz=64", "--dynamic"),
    "nms": ("--imgsz=64", "--nms", "--conf-thres=0.25"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def weights(folder):
    return write_tiny_weights(folder, trained_size=96)


@pytest.fixture(scope="module")
def files(folder, weights):
    """The ONNX file of each line of `FILES`, by name."""
    flags = {name: ["--weights", str(weights), *words] for name, words in FILES.items()}
    graphs = write_graphs(folder, flags)
    checkpoint, found = load_weights(weights), {}
    model = load_detector(checkpoint, "cpu")
    for name, graph in graphs.items():
        found[name] = folder / f"model-{name}.onnx"
        metadata = metadata_for(parse_export_flags(flags[name]), checkpoint, model)
        write_onnx(graph, found[name], metadata, None)
    return found


@pytest.fixture(scope="module")
def images(folder):
    """Files of three images, two of which have other shapes."""
    (folder / "images").mkdir()
    for index, (height, width) in enumerate([(64, 64), (48, 80), (90, 50)]):
        path = folder / "images" / f"{index}.png"
        cv2.imwrite(str(path), noise(height, width, index)[..., ::-1])
    return folder / "images"


def assert_same(found, expected):
    """Rounding alone may differ: the model folds BatchNorm in another order."""
    assert found.class_index.tolist() == expected.class_index.tolist() and len(expected)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
    np.testing.assert_allclose(found.boxes_xyxy, expected.boxes_xyxy, atol=1e-2)


# `duet.load`


@pytest.mark.parametrize("name", ["static", "batch", "dynamic", "nms"])
def test_exported_file_finds_what_the_model_finds(weights, files, name):
    """In a square image, which neither pads."""
    image = noise(64, 64, 3)
    file, model = duet.load(files[name]), duet.load(weights)
    assert file.class_names == model.class_names == CLASS_NAMES
    assert_same(file(image, size=64, max_det=100)[0], model(image, size=64, max_det=100)[0])


def test_exported_file_works_as_a_hub_model(files, weights):
    image = noise(64, 64, 3)
    found = hubconf.custom(files["wide"], device="cpu")(image)
    assert found.xyxy[0].shape[1] == 6 and hubconf.custom(files["static"])(image).n == 1


def test_other_sizes_and_augmentation_are_refused(files):
    detector = duet.load(files["static"])
    with pytest.raises(
        UserError, match="--img 96: the exported file accepts only images of 64 x 64 px"
    ):
        detector(noise(64, 64), size=96)
    with pytest.raises(UserError, match="--augment: not supported for exported files"):
        detector(noise(64, 64), augment=True)
    with pytest.raises(UserError, match="which only detect.py, val.py, duet serve and duet"):
        load_weights(files["static"])


# The commands.


def figures_of(project, data, weights, *words):
    """Return all figures of val.py, as COCO's metric has them."""
    flags = ["--weights", weights, "--data", data, "--workers=0", "--device=cpu", "--img=64"]
    validated = val.main([*map(str, flags), "--project", str(project), *words])
    return list(validated.result.summary().values())


def test_exported_file_has_the_model_metrics(tmp_path, weights, files):
    """Padded alike: square, or with the same rectangles."""
    data = write_small_dataset(tmp_path, CLASS_NAMES)
    for words, name in ((["--square"], "batch"), ([], "dynamic")):
        model = figures_of(tmp_path, data, weights, *words)
        np.testing.assert_allclose(figures_of(tmp_path, data, files[name]), model, atol=5e-4)
    assert model[1] > 0


HIDE_FRAMEWORKS = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "oneflow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def test_detecting_with_a_file_needs_no_framework(tmp_path, files, images):
    """Importing one of them would fail."""
    (tmp_path / "sitecustomize.py").write_text(HIDE_FRAMEWORKS)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [
        sys.executable, "detect.py", "--weights", files["static"], "--source", images,
        "--project", tmp_path, "--save-json", "--nosave", "--device=cpu",
    ]  # fmt: skip
    environment = {**os.environ, "YOLO_BACKEND": "onnx", "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "exp" / "detections.json").read_text(encoding="utf-8"))
    here = duet.load(files["static"])(sorted(images.iterdir()))
    for record, found in zip(written["images"], here, strict=True):
        scores = [box["score"] for box in record["detections"]]
        np.testing.assert_allclose(scores, found.scores, atol=1e-4)
    assert sum(map(len, here)) > 0


def test_outputs_have_public_names_and_shapes(graph_of):
    number = sum(3 * (64 // stride) * (96 // stride) for stride in (8, 16))
    plain = shapes(onnx.load_model(graph_of("mask rows").path))
    assert plain == {"output0": (1, number, 5 + 5 + 4), "output1": (1, 4, 16, 24)}
    found = shapes(onnx.load_model(graph_of("mask nms").path))
    assert found == {"output0": (1, 20, 6), "output1": (1, 20, 16, 24)}
    free = shapes(onnx.load_model(graph_of("mask dynamic").path))
    assert free["output0"][0] == "batch" and free["output1"][1] == 4
    metadata = [graph_of(name).metadata for name in ("mask rows", "mask nms")]
    assert [(one.head, one.output) for one in metadata] == [
        ("Segment", MASK_ROWS), ("Segment", MASKS),
    ]  # fmt: skip


class Returning:
    """A runtime that returns what a test says."""

    name = "a test"

    def __init__(self, metadata, *outputs):
        self.metadata, self.outputs = metadata, outputs

    def __call__(self, images):
        return self.outputs


SETTINGS = SuppressionSettings(0.2)


def ones(*shapes, broken=None, value=np.nan):
    """Arrays of these shapes; one of them may hold a value that is no number."""
    outputs = [np.ones(shape, np.float32) for shape in shapes]
    if broken is not None:
        outputs[broken][0, 1, 1] = value
    return outputs


ROWS_AND_MASKS, FOUND_MASKS = [(1, 4, 14), (1, 4, 16, 24)], [(1, 4, 6), (1, 4, 16, 24)]
NOT_FINITE = "a.onnx: its outputs are not finite"


@pytest.mark.parametrize(
    ("kind", "outputs", "text"),
    [
        (MASK_ROWS, ones((1, 7, 14)), "returns 1 output, but its metadata has 2"),
        (MASK_ROWS, ones((1, 7, 14), (1, 5, 16, 24)), "no mask of 5 classes can be"),
        (MASKS, ones((1, 7, 6), (1, 4, 16, 24)), r"\(1, 7, 6\) with masks \(1, 4, 16, 24\)"),
        *((kind, ones(*shapes, broken=broken, value=value), NOT_FINITE)
          for kind, shapes in ((MASK_ROWS, ROWS_AND_MASKS), (MASKS, FOUND_MASKS))
          for broken, value in ((0, np.nan), (1, np.nan), (1, np.inf))),
        # Each mask is its own prototype: time would grow with the square of their number.
        (MASKS, ones((1, 1025, 6), (1, 1025, 1, 1)),
         "returns 1,025 masks per image; accepted: at most 1,024"),
    ],
)  # fmt: skip
def test_unusable_outputs_are_refused(graph_of, kind, outputs, text):
    metadata = dataclasses.replace(graph_of("mask rows").metadata, output=kind)
    predictor = ExportedPredictor(Returning(metadata, *outputs), "a.onnx")
    with pytest.raises(UserError, match=text):
        predictor.decode_above(predictor(np.zeros((1, 3, 64, 96), np.uint8)), SETTINGS)


@pytest.mark.parametrize(
    ("head", "words", "text"),
    [
        (MaskHead, ["--nms", "--topk-all", "1025"], "--topk-all 1025: at most 1,024 masks per im"),
        (MaskHead, ["--include", "onnx", "ncnn"], "--include ncnn: .* 2 outputs.* onnx, openvino"),
        (ClassifyHead, ["--nms"], "--nms: classifiers predict no boxes"),
    ],
)
def test_flags_useless_for_the_task_are_refused_by_name(head, words, text):
    with pytest.raises(UserError, match=text):
        output_kind(parse_export_flags(["--weights", "a.pt", *words]), head)
