"""`duet audit` from flags to files: planted errors are told as what they are."""

import csv
import sys

import cv2
import numpy as np
import pytest
import yaml

from duet.models.evaluation.audit import __main__ as command
from duet.models.evaluation.audit.audit_config import AuditConfig
from duet.models.evaluation.audit.findings import NOTHING
from duet.utils.data import crops
from duet.utils.errors import UserError
from duet.utils.geometry.boxes import pairwise_iou, xyxy_to_cxcywh
from duet.utils.weights.checkpoint import save_checkpoint
from tests.small import (
    CLASS_NAMES,
    noise,
    tiny_checkpoint,
    with_trained_size,
    write_class_folders,
    write_tiny_classifier,
    write_tiny_free_weights,
    write_tiny_segmenter,
)

HEIGHT, WIDTH = 64, 96
OUTPUTS = 5 + len(CLASS_NAMES)
HEAD = "model.4.m."
NEVER_SEEN = len(CLASS_NAMES) - 1
CORNER = [(0, np.array([0.0, 0.0, 4.0, 4.0]))]  # where nothing is seen
SIDES = ("xmin", "ymin", "xmax", "ymax")


def write_dataset(folder, labels, names=CLASS_NAMES):
    """Write three images with labels of rows (class, box in pixels) each."""
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
    for number, rows in enumerate(labels):
        cv2.imwrite(str(folder / "images" / f"{number}.png"), noise(HEIGHT, WIDTH, seed=number))
        lines = [
            f"{kind} " + " ".join(map(str, xyxy_to_cxcywh(box) / (WIDTH, HEIGHT, WIDTH, HEIGHT)))
            for kind, box in rows
        ]
        (folder / "labels" / f"{number}.txt").write_text("\n".join(lines))
    data = {"path": str(folder), "train": "images", "val": "images", "names": list(names)}
    (folder / "data.yaml").write_text(yaml.safe_dump(data))
    return folder / "data.yaml"


@pytest.fixture(autouse=True)
def _small_crops(monkeypatch):
    """Of 640 px, the hundreds of crops take two thirds of all time."""
    monkeypatch.setattr(crops, "LONG_SIDE", 64)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights that see objects of all classes but the last."""
    folder = tmp_path_factory.mktemp("weights")
    checkpoint = tiny_checkpoint(folder)
    for name, array in checkpoint.ema.items():
        if name.startswith(HEAD):  # (A * OUTPUTS, ...)
            rows = array.reshape(-1, OUTPUTS, *array.shape[1:])
            rows[:, -1] = -20 if name.endswith("bias") else 0
    save_checkpoint(folder / "tiny.safetensors", with_trained_size(checkpoint, 64))
    return folder / "tiny.safetensors"


def run(monkeypatch, weights, data, project, *flags, size=("--img", 64)):
    line = (
        "audit", "--weights", weights, "--data", data, *size, "--workers", 0,
        "--device", "cpu", "--project", project, *flags,
    )  # fmt: skip
    monkeypatch.setattr(sys, "argv", list(map(str, line)))
    command.main()
    with (project / "exp" / "audit.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def suggested(row):
    return np.array([float(row[f"suggested_{side}"]) for side in SIDES])


def test_planted_errors_are_reported_by_kind(weights, tmp_path, monkeypatch, capsys):
    """The surest box of an image is first not labelled; then by another class; then shifted."""
    data = write_dataset(tmp_path / "none", [CORNER] * 3)
    rows = run(monkeypatch, weights, data, tmp_path / "1", "--conf", 0.05)
    seen = next(row for row in rows if row["kind"] == "overlooked")
    assert float(seen["score"]) == float(seen["confidence"]) > 0.3
    image, box = int(seen["image"][-5]), suggested(seen)
    kind = CLASS_NAMES.index(seen["suggested_class"])
    shifted = box - [0, 0, 0, 0.6 * (box[3] - box[1])]
    expected = {
        "right": (kind, box, None), "swapped": (NEVER_SEEN, box, "swapped"),
        "misplaced": (kind, shifted, "misplaced"),
    }  # fmt: skip
    for name, (label, label_box, reported) in expected.items():
        labels = [[(label, label_box)] if number == image else CORNER for number in range(3)]
        data = write_dataset(tmp_path / name, labels)
        rows = run(monkeypatch, weights, data, tmp_path / f"{name}-run", "--conf", 0.05)
        mine = [
            row for row in rows
            if row["image"] == str(tmp_path / name / "images" / f"{image}.png")
            and row["suggested_class"] == CLASS_NAMES[kind]
            and pairwise_iou(box[None], suggested(row)[None])[0, 0] > 0.99
        ]  # fmt: skip
        assert [row["kind"] for row in mine] == ([reported] if reported else [])
        assert [row["class"] for row in mine] == ([CLASS_NAMES[label]] if reported else [])
    text = (tmp_path / "right-run" / "exp" / "audit.html").read_text(encoding="utf-8")
    assert "Audit of data, val" in text
    assert "worth a look." in capsys.readouterr().out


def test_weights_for_other_classes_are_refused(weights, tmp_path, monkeypatch):
    data = write_dataset(tmp_path / "data", [[]] * 2 + [[(0, np.array([0.0, 0, 9, 9]))]], ["cat"])
    with pytest.raises(UserError, match="no name matches"):
        run(monkeypatch, weights, data, tmp_path)
    assert not (tmp_path / "exp").exists()


def test_segmenter_audits_boxes_and_is_scored_with_masks(monkeypatch, tmp_path):
    data = write_dataset(tmp_path / "data", [CORNER, CORNER, []])
    rows = run(monkeypatch, write_tiny_segmenter(tmp_path), data, tmp_path / "runs")
    assert {row["kind"] for row in rows} >= {"overlooked", "misplaced"}
    page = (tmp_path / "runs" / "exp" / "audit.html").read_text(encoding="utf-8")
    assert "mAP50(B)" in page and "mAP50(M)" in page


def test_default_size_is_the_training_size(weights, monkeypatch, tmp_path):
    data = write_dataset(tmp_path / "data", [CORNER] * 3)
    given = run(monkeypatch, weights, data, tmp_path / "1")
    assert run(monkeypatch, weights, data, tmp_path / "2", size=()) == given != []


def test_anchor_free_detector_can_audit(monkeypatch, tmp_path):
    data = write_dataset(tmp_path / "data", [CORNER] * 3)
    rows = run(monkeypatch, write_tiny_free_weights(tmp_path), data, tmp_path / "runs")
    assert [row["kind"] for row in rows] == ["overlooked"] * 3


def test_classifier_is_refused(monkeypatch, tmp_path):
    data = write_dataset(tmp_path / "data", [CORNER, CORNER, []])
    with pytest.raises(UserError, match="use weights of a detector"):
        run(monkeypatch, write_tiny_classifier(tmp_path), data, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_class_folders_have_no_boxes_to_audit(weights, monkeypatch, tmp_path):
    data = write_class_folders(tmp_path / "data", 2, 2, CLASS_NAMES)
    with pytest.raises(UserError, match="--data .*: images in folders .* have no boxes to audit"):
        run(monkeypatch, weights, data, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("known", "num_known", "expected"),
    [
        (("cat", "bird", "dog"), 3, ([1, NOTHING, 0], [2, 0])),
        (("dog", "cat"), 2, ([0, 1], [0, 1])),
        ((), 2, ([0, 1], [0, 1])),
        (("cat",), 1, ([1], [NOTHING, 0])),
        (("Cat", "bird"), 2, "no name matches"),
        ((), 3, "--data d.yaml has 2 classes, --weights w.pt has 3 without names"),
    ],
)
def test_classes_are_shared_by_name_or_number(known, num_known, expected, caplog):
    from duet.models.evaluation.audit.audit import share_classes

    config = AuditConfig(data="d.yaml", weights=("w.pt",))
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            share_classes(config, ("dog", "cat"), known, num_known)
        return
    shared = share_classes(config, ("dog", "cat"), known, num_known)
    assert tuple(found.tolist() for found in shared) == expected
    assert ("not trained for 1 class of the dataset" in caplog.text) == (num_known == 1)
