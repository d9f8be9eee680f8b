"""The files of export.py are weights: detect.py, val.py and `duet.load` find what the model does.

The model is a tiny one, its ONNX files are written once for all tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import cv2
import numpy as np
import pytest

import duet
import hubconf
import val
from duet.models.evaluation import validation
from duet.models.export.job import metadata_for
from duet.models.stored import load_detector
from duet.utils.errors import UserError
from duet.utils.export.config import parse_export_flags
from duet.utils.export.onnx import write_onnx
from duet.utils.project import PROJECT
from duet.utils.weights.load import load_weights
from tests.export.recorded_files import write_graphs
from tests.small import write_small_dataset
from tests.tiny_weights import CLASS_NAMES, noise, write_tiny_weights

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
    return write_tiny_weights(folder)


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


def same(found, expected):
    """Rounding alone may differ: the model folds BatchNorm in another order."""
    assert found.class_index.tolist() == expected.class_index.tolist() and len(expected)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
    np.testing.assert_allclose(found.boxes_xyxy, expected.boxes_xyxy, atol=1e-2)


# `duet.load`


@pytest.mark.parametrize("name", ["static", "batch", "dynamic", "nms"])
def test_a_file_finds_what_the_model_finds(weights, files, name):
    """In a square image, which neither pads."""
    image = noise(64, 64, 3)
    file, model = duet.load(files[name]), duet.load(weights)
    assert file.class_names == model.class_names == CLASS_NAMES
    same(file(image, size=64, max_det=100)[0], model(image, size=64, max_det=100)[0])


def test_a_file_is_a_model_of_the_hub(files, weights):
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
    with pytest.raises(UserError, match="an exported file, which only detect.py, val.py and"):
        load_weights(files["static"])


# The commands.


def figures_of(monkeypatch, tmp_path, data, weights, *words):
    """Return all figures of val.py, as COCO's metric has them."""
    results = []

    def noted(*arguments, **options):
        results.append(evaluate(*arguments, **options))
        return results[-1]

    evaluate = validation.evaluate
    command = ["val.py", "--weights", weights, "--data", data, "--workers=0", "--device=cpu"]
    monkeypatch.setattr("sys.argv", [*map(str, command), "--project", str(tmp_path), *words])
    with monkeypatch.context() as context:
        context.setattr(validation, "evaluate", noted)
        val.main()
    return list(results[0].result.summary().values())


def test_a_file_has_the_figures_of_the_model(monkeypatch, tmp_path, weights, files):
    """Padded alike: square, or with the same rectangles."""
    data = write_small_dataset(tmp_path)
    for words, names in ((["--square"], ["static", "batch"]), ([], ["dynamic"])):
        model = figures_of(monkeypatch, tmp_path, data, weights, "--img=64", *words)
        for name in names:
            file = figures_of(monkeypatch, tmp_path, data, files[name], "--img=64")
            np.testing.assert_allclose(file, model, atol=5e-4)
    assert model[1] > 0


def run(script, *words, **environment):
    """Run a command in a process of its own."""
    command = [sys.executable, script, *map(str, words), "--device=cpu"]
    return subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, timeout=300,
        env={**os.environ, **environment},
    )  # fmt: skip


HIDE_FRAMEWORKS = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "oneflow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def test_detecting_needs_neither_pytorch_nor_oneflow(tmp_path, files, images):
    """Importing one of them would fail."""
    (tmp_path / "sitecustomize.py").write_text(HIDE_FRAMEWORKS)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run(
        "detect.py", "--weights", files["static"], "--source", images, "--project", tmp_path,
        "--save-json", "--nosave", YOLO_BACKEND="onnx", PYTHONPATH=path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "exp" / "detections.json").read_text(encoding="utf-8"))
    here = duet.load(files["static"])(sorted(images.iterdir()))
    for record, found in zip(written["images"], here, strict=True):
        scores = [box["score"] for box in record["detections"]]
        np.testing.assert_allclose(scores, found.scores, atol=1e-4)
    assert sum(map(len, here)) > 0
