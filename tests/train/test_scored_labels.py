"""The text files of detect.py, scored against the labels, give val.py's figures.

docs/en/detect.md states by how much they differ, and tests/scored_labels.py why.
"""

from __future__ import annotations

import logging

import cv2
import numpy as np
import pytest
import yaml

import backend
import detect
import val
from models import validation
from models.inference.image_detector import ImageDetector
from models.inference.predictor import make_predictor, suppression_settings
from tests.scored_labels import Differences, Thresholds, figures, save_text, score_text
from tests.shared_files import shared_path
from tests.tiny_weights import CLASS_NAMES, noise, write_tiny_weights
from utils.boxes import xyxy_to_cxcywh
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split
from utils.evaluation.nms import SuppressionSettings
from utils.weights.load import load_weights

# Six digits are 1e-6 of a box's place. A figure changes where that moves an IoU across one of the
# ten thresholds, or makes two scores equal; with these images it does not.
TOLERANCE = 1e-6
SMALL = Thresholds(image_size=64, confidence=0.1, iou=0.45, max_detections=50)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_tiny_weights(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def in_process(monkeypatch, caplog):
    """Run a command's main in this process."""
    caplog.set_level(logging.WARNING)

    def run(line):
        monkeypatch.setattr("sys.argv", line)
        {"detect.py": detect, "val.py": val}[line[0]].main()

    return run


def write_dataset(folder, weights, sizes):
    """Write images of blocks and, as labels, most of what the model finds in them, a bit off."""
    settings = SuppressionSettings(0.3, 0.45, max_detections=12, multi_label=False)
    predictor = make_predictor([load_weights(str(weights))], "cpu")
    detector, random = ImageDetector(predictor, "cpu", 64, settings), np.random.default_rng(0)
    for kind in ("images", "labels"):
        (folder / kind).mkdir()
    for number, (height, width) in enumerate(sizes):
        image = noise(height, width, seed=number)
        cv2.imwrite(str(folder / "images" / f"{number}.png"), image[..., ::-1])
        (found,) = detector.detect([image])
        labelled = found.take(np.flatnonzero(random.uniform(size=len(found.scores)) < 0.8))
        boxes = xyxy_to_cxcywh(labelled.boxes_xyxy) / np.float32([width, height] * 2)
        boxes[:, 2:] *= random.uniform(0.7, 1, (len(boxes), 2))
        rows = zip(labelled.class_index, boxes.tolist(), strict=True)
        lines = [f"{label} {' '.join(f'{x:.5f}' for x in box)}\n" for label, box in rows]
        (folder / "labels" / f"{number}.txt").write_text("".join(lines))
    data = {"path": str(folder), "train": "images", "val": "images", "names": [*CLASS_NAMES]}
    (folder / "data.yaml").write_text(yaml.safe_dump(data))
    return folder / "data.yaml"


def validated(monkeypatch, in_process, weights, data, project, thresholds, *flags):
    """Run val.py; return the figures that it prints, in full."""
    found, evaluate = [], validation.evaluate

    def noted(*arguments, **options):
        found.append(evaluate(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(validation, "evaluate", noted)
    given = ("--weights", weights, "--data", data, "--project", project, "--workers", 0)
    in_process(["val.py", *map(str, given), "--device", "cpu", *thresholds.flags, *flags])
    return figures(found[0].result)


def scored(in_process, weights, data, source, project, thresholds):
    labels = save_text(weights, source, project, thresholds, in_process)
    dataset = load_dataset(data, splits=("val",))
    return figures(score_text(labels, load_split(dataset, "val"), dataset.class_names))


def test_text_scores_as_val_py_where_both_see_the_same_pixels_and_one_class_a_box(
    monkeypatch, in_process, weights, tmp_path
):
    data = write_dataset(tmp_path, weights, [(64, 64)] * 12)
    text = scored(in_process, weights, data, tmp_path / "images", tmp_path / "detect", SMALL)
    monkeypatch.setattr(
        validation, "suppression_settings", lambda config, **_: suppression_settings(config, False)
    )
    project = tmp_path / "val"
    printed = validated(monkeypatch, in_process, weights, data, project, SMALL, "--square")
    assert (printed > 0.2).all() and (printed < 0.95).all()
    np.testing.assert_allclose(text, printed, rtol=0, atol=TOLERANCE)


def test_what_lies_between_val_py_and_the_text_is_known(monkeypatch, in_process, weights, tmp_path):
    data = write_dataset(tmp_path, weights, [(64, 48), (50, 90), (33, 70), (96, 64)] * 3)
    assert_differences_are_known(monkeypatch, in_process, weights, data, tmp_path, SMALL, "images")


def test_coco_s_images_score_as_val_py_says(monkeypatch, in_process, tmp_path):
    weights = shared_path("weights/coco-yolov5n-v6.pt")
    folder = shared_path("data/coco256")
    every = {"torch": 8, "oneflow": 32}[backend.use()]  # OneFlow's CPU kernels are slow
    images = sorted((folder / "images" / "val2017").glob("*.jpg"))[::every]
    (tmp_path / "val.txt").write_text("".join(f"{path}\n" for path in images))
    (document,) = (yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml"))
    names = {"names": document["names"], "train": "val.txt", "val": "val.txt"}
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({"path": str(tmp_path), **names}))
    thresholds, data = Thresholds(image_size=320), tmp_path / "data.yaml"
    assert_differences_are_known(
        monkeypatch, in_process, weights, data, tmp_path, thresholds, "val.txt"
    )


def assert_differences_are_known(
    monkeypatch, in_process, weights, data, folder, thresholds, source
):
    printed = validated(monkeypatch, in_process, weights, data, folder / "val", thresholds)
    text = scored(in_process, weights, data, folder / source, folder / "detect", thresholds)
    dataset = load_dataset(data, splits=("val",))
    samples = load_split(dataset, "val")
    checkpoint = load_weights(str(weights))
    between = Differences(checkpoint, samples, dataset.class_names, thresholds)
    first, *_, last = between.ways().values()
    np.testing.assert_array_equal(first(), printed)
    np.testing.assert_allclose(last(), text, rtol=0, atol=TOLERANCE)
    assert (text != printed).any() and (text > 0.1).all()
