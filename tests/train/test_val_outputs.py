"""val.py as a command: label files, timings, and all objects taken for one class."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest
import yaml

import val
from tests.tiny_weights import CLASS_NAMES, noise, write_tiny_weights

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


def test_label_files_hold_what_the_coco_file_does(folder, tmp_path, monkeypatch):
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


def test_speed_validates_at_the_thresholds_of_detection_and_says_how_fast(
    folder, tmp_path, monkeypatch, capsys
):
    results = run(monkeypatch, folder, tmp_path, "--task", "speed", "--save-txt", "--save-conf")
    printed = capsys.readouterr().out
    assert "\n3 images in " in printed and " images/s\n" in printed
    scores = [
        float(line.split()[5])
        for path in (results / "labels").glob("*.txt")
        for line in path.read_text().splitlines()
    ]
    assert scores and min(scores) >= 0.25
