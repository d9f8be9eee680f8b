"""val.py as a command: label files that score as it does, timings, and --single-cls."""

import json
import logging

import cv2
import numpy as np
import pytest
import yaml

import detect
import val
from duet.models.evaluation import validation
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictor import make_predictor
from duet.utils.cli.val_config import ValConfig
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import ground_truth
from duet.utils.data.sources.splits import load_split
from duet.utils.evaluation.coco.metric import DetectionEvaluator
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.geometry.boxes import cxcywh_to_xyxy, xyxy_to_cxcywh
from duet.utils.geometry.detections import Detections
from duet.utils.weights.load import load_weights
from tests.small import CLASS_NAMES, noise, write_tiny_weights

HEIGHT, WIDTH = 64, 96
SIX_DIGITS = 5e-6  # of numbers up to 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weights, and a dataset of three images with an object each."""
    folder = tmp_path_factory.mktemp("val")
    write_tiny_weights(folder)
    for kind in ("images", "labels"):
        (folder / kind).mkdir()
    for number in range(3):
        cv2.imwrite(str(folder / "images" / f"{number}.png"), noise(HEIGHT, WIDTH, seed=number))
        (folder / "labels" / f"{number}.txt").write_text(f"{number} 0.5 0.5 0.5 0.5\n")
    data = {"path": str(folder), "train": "images", "val": "images", "names": list(CLASS_NAMES)}
    (folder / "data.yaml").write_text(yaml.safe_dump(data))
    return folder


def run(monkeypatch, folder, project, *flags):
    line = (
        "val.py", "--weights", folder / "tiny0.safetensors", "--data", folder / "data.yaml",
        "--img", 64, "--workers", 0, "--device", "cpu", "--project", project, *flags,
    )  # fmt: skip
    monkeypatch.setattr("sys.argv", list(map(str, line)))
    val.main()
    return project / "exp"


def test_label_files_agree_with_the_coco_file(folder, tmp_path, monkeypatch):
    """Two files written by different code, in different units."""
    flags = ("--save-txt", "--save-conf", "--save-json", "--conf", 0.3)
    results = run(monkeypatch, folder, tmp_path, *flags)
    predictions = json.loads((results / "predictions.json").read_text())
    assert len(predictions) > 5
    for number in range(3):
        expected = sorted(
            (
                [
                    (left + width / 2) / WIDTH, (top + height / 2) / HEIGHT, width / WIDTH,
                    height / HEIGHT, row["score"],
                ]
                for row in predictions
                if str(row["image_id"]) == str(number)
                for left, top, width, height in [row["bbox"]]
            ),
            key=lambda row: row[-1],
        )  # fmt: skip
        text = (results / "labels" / f"{number}.txt").read_text()
        found = np.array([line.split() for line in text.splitlines()], float)
        assert len(found) == len(expected)
        np.testing.assert_allclose(np.sort(found[:, 5]), found[:, 5])  # lowest score first
        np.testing.assert_allclose(found[:, 1:], expected, rtol=SIX_DIGITS, atol=SIX_DIGITS)


def test_speed_task_uses_detect_thresholds_and_prints_speed(folder, tmp_path, monkeypatch, capsys):
    results = run(monkeypatch, folder, tmp_path, "--task", "speed", "--save-txt", "--save-conf")
    printed = capsys.readouterr().out
    assert "\n3 images in " in printed and " images/s\n" in printed
    scores = [
        float(line.split()[5])
        for path in (results / "labels").glob("*.txt")
        for line in path.read_text().splitlines()
    ]
    assert scores and min(scores) >= 0.25


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


def test_saved_labels_score_the_same_as_val(monkeypatch, in_process, weights, tmp_path):
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
    settings = ValConfig.suppression
    monkeypatch.setattr(ValConfig, "suppression", lambda config, **_: settings(config, False))
    in_process(["val.py", *given, "--data", str(data), "--project", str(tmp_path / "val"),
                "--workers", "0", "--square"])  # fmt: skip
    wanted = metrics(printed[0].result)
    assert (wanted > 0.2).all() and (wanted < 0.95).all()
    np.testing.assert_allclose(text, wanted, rtol=0, atol=TOLERANCE)
