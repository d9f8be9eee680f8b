"""The text files of detect.py, scored against the labels, give val.py's figures."""

from __future__ import annotations

import logging

import cv2
import numpy as np
import pytest
import yaml

import detect
import val
from duet.models.evaluation import validation
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictor import make_predictor, suppression_settings
from duet.utils.boxes import cxcywh_to_xyxy, xyxy_to_cxcywh
from duet.utils.data.loading.reading import ground_truth
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.detections import Detections
from duet.utils.evaluation.coco.metric import DetectionEvaluator
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.weights.load import load_weights
from tests.tiny_weights import CLASS_NAMES, noise, write_tiny_weights

# Six digits are 1e-6 of a box's place. A figure changes where that moves an IoU across one of the
# ten thresholds, or makes two scores equal; with these images it does not.
TOLERANCE = 1e-6
FLAGS = ["--img", "64", "--conf-thres", "0.1", "--iou-thres", "0.45", "--max-det", "50"]


def metrics(result):
    """Return P, R, mAP50 and mAP50-95."""
    return np.array(result.means)


def score_text(folder, samples, class_names):
    """Score the files of --save-txt --save-conf in a folder; without a file nothing was found."""
    evaluator = DetectionEvaluator(class_names)
    for index, sample in enumerate(samples):
        path = folder / f"{sample.image_path.stem}.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = np.array([line.split() for line in lines], np.float64).reshape(-1, 6)
        rows = rows[::-1]  # the highest score first
        boxes_xyxy = cxcywh_to_xyxy(rows[:, 1:5] * ([sample.width, sample.height] * 2))
        found = Detections(boxes_xyxy, rows[:, 5].astype(np.float32), rows[:, 0].astype(np.int64))
        evaluator.add(index, found, ground_truth(sample))
    return metrics(evaluator.result())


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


def test_text_scores_as_val_py_where_both_see_the_same_pixels_and_one_class_a_box(
    monkeypatch, in_process, weights, tmp_path
):
    data = write_dataset(tmp_path, weights, [(64, 64)] * 12)
    given = ["--weights", str(weights), "--device", "cpu", *FLAGS]
    in_process(["detect.py", *given, "--source", str(tmp_path / "images"), "--project",
                str(tmp_path / "detect"), "--save-txt", "--save-conf", "--nosave"])  # fmt: skip
    dataset = load_dataset(data, splits=("val",))
    labels = tmp_path / "detect" / "exp" / "labels"
    text = score_text(labels, load_split(dataset, "val"), dataset.class_names)
    printed, evaluate = [], validation.evaluate

    def noted(*arguments, **options):
        printed.append(evaluate(*arguments, **options))
        return printed[-1]

    monkeypatch.setattr(validation, "evaluate", noted)
    monkeypatch.setattr(
        validation, "suppression_settings", lambda config, **_: suppression_settings(config, False)
    )
    in_process(["val.py", *given, "--data", str(data), "--project", str(tmp_path / "val"),
                "--workers", "0", "--square"])  # fmt: skip
    wanted = metrics(printed[0].result)
    assert (wanted > 0.2).all() and (wanted < 0.95).all()
    np.testing.assert_allclose(text, wanted, rtol=0, atol=TOLERANCE)
