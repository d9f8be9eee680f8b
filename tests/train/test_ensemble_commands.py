"""Two models of unequal strides together, through detect.py and val.py as commands."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest
import yaml

import detect
import val
from backend import nn
from tests.golden_models import drawn_model
from tests.tiny_weights import noise
from utils.state.checkpoint import Checkpoint, Header, save_checkpoint

SIDE = 128  # a multiple of both strides, 32 and 64: each model sees the same pixels as both do
NUM_IMAGES = 2
# All boxes of all models stay, so that those of two are those of one and of the other.
FLAGS = ("--img", SIDE, "--conf-thres", 0.3, "--iou-thres", 1, "--max-det", 10_000,
         "--device", "cpu", "--save-json")  # fmt: skip
# val.py does not fold BatchNorm: float32 sums of a network in another order. Pixels, and scores.
BOX_TOLERANCE, SCORE_TOLERANCE = 0.01, 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weights n.safetensors and n6.safetensors of one class, and a dataset of two images."""
    folder = tmp_path_factory.mktemp("ensemble")
    for name, model_yaml in (("n", "yolov5n.yaml"), ("n6", "hub/yolov5n6.yaml")):
        write_weights(folder / f"{name}.safetensors", drawn_model(model_yaml, 1.8, classes=1))
    for kind in ("images", "labels"):
        (folder / kind).mkdir()
    for number in range(NUM_IMAGES):
        image = noise(SIDE, SIDE, seed=number)
        cv2.imwrite(str(folder / "images" / f"{number}.png"), image)
        (folder / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.25 0.25\n")
    data = {"path": str(folder), "train": "images", "val": "images", "names": ["thing"]}
    (folder / "data.yaml").write_text(yaml.safe_dump(data))
    return folder


def write_weights(path, model):
    header = Header(
        model=model.spec.document, class_names=("thing",), epoch=0, batch_number=0,
        last_update=-1, ema_updates=0, best_fitness=0.0, hyperparameters={}, settings={},
        backend="",
    )  # fmt: skip
    arrays = nn.state_arrays(model)
    save_checkpoint(path, Checkpoint(header, arrays, arrays, {}))


def run(monkeypatch, command, folder, project, names, *flags):
    weights = [folder / f"{name}.safetensors" for name in names]
    line = (f"{command.__name__}.py", "--weights", *weights, "--project", project, *FLAGS, *flags)
    monkeypatch.setattr("sys.argv", list(map(str, line)))
    command.main()
    return project / "exp"


def detected(monkeypatch, folder, project, *names):
    """Return the rows (K, 5) of each image: box and score, highest score first."""
    flags = ("--source", folder / "images", "--nosave")
    results = run(monkeypatch, detect, folder, project, names, *flags)
    records = json.loads((results / "detections.json").read_text())["images"]
    return [
        np.array([[*found["box_xyxy"], found["score"]] for found in record["detections"]])
        for record in records
    ]


def validated(monkeypatch, folder, project, *names):
    flags = ("--data", folder / "data.yaml", "--square", "--workers", 0)
    results = run(monkeypatch, val, folder, project, names, *flags)
    rows = [[] for _ in range(NUM_IMAGES)]
    for one in json.loads((results / "predictions.json").read_text()):
        left, top, width, height = one["bbox"]
        box = left, top, left + width, top + height
        rows[int(one["image_id"])].append((*box, one["score"]))
    return list(map(np.array, rows))


def by_score(rows):
    return rows[np.argsort(-rows[:, 4], kind="stable")]


def test_models_of_strides_32_and_64_find_together_what_both_find(
    monkeypatch, capsys, folder, tmp_path
):
    sets = [("n",), ("n6",), ("n", "n6")]
    alone, other, together = (
        detected(monkeypatch, folder, tmp_path / "-".join(names), *names) for names in sets
    )
    assert len(together) == NUM_IMAGES
    for mine, others, both in zip(alone, other, together, strict=True):
        assert min(len(mine), len(others)) > 10
        # The same kernels on the same pixels: not a bit differs.
        np.testing.assert_array_equal(both, by_score(np.concatenate([mine, others])))

    capsys.readouterr()
    validations = validated(monkeypatch, folder, tmp_path / "val", "n", "n6")
    assert any(
        line.split()[:3] == ["all", "2", "2"] for line in capsys.readouterr().out.splitlines()
    )
    for found, wanted in zip(validations, together, strict=True):
        assert len(found) == len(wanted)
        np.testing.assert_allclose(by_score(found)[:, 4], wanted[:, 4], atol=SCORE_TOLERANCE)
        distances = np.abs(found[:, None, :4] - wanted[None, :, :4]).max(axis=2)
        assert max(distances.min(axis=0).max(), distances.min(axis=1).max()) < BOX_TOLERANCE
