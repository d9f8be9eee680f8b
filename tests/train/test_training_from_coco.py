"""train.py on COCO's instances JSON: an epoch from images and outlines of COCO."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.shared_files import shared_path
from tests.small import write_tiny_model
from tests.train.short_runs import folder_of, start
from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from utils.data.image.header import read_image_size

NUM_TRAIN, NUM_VAL = 6, 2


def outlines_of(path: Path) -> list[tuple[int, np.ndarray]]:
    """Return class and normalised outline (K, 2) of the lines of a label file."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return [(int(row[0]), np.array(row[1:], np.float64).reshape(-1, 2)) for row in rows]


def as_coco(images: list[Path], labels: Path, names: dict[int, str]) -> dict[str, list]:
    """Return an instances JSON whose category ids have holes, and whose first object is a crowd."""
    document: dict[str, list] = {"images": [], "annotations": []}
    for image_id, image in enumerate(images, start=40):
        height, width = read_image_size(image, 10**7)
        document["images"].append(
            {"id": image_id, "file_name": image.name, "height": height, "width": width}
        )
        for label, outline in outlines_of(labels / f"{image.stem}.txt"):
            points = outline * (width, height)
            box = [*points.min(0).tolist(), *np.ptp(points, axis=0).tolist()]
            number = len(document["annotations"])
            document["annotations"].append({
                "id": number + 1, "image_id": image_id, "category_id": 3 * label + 1, "bbox": box,
                "area": box[2] * box[3] / 2, "iscrowd": int(number == 0),
                "segmentation": [points.ravel().tolist()],
            })  # fmt: skip
    categories = [{"id": 3 * number + 1, "name": name} for number, name in names.items()]
    return {**document, "categories": categories}


@pytest.fixture
def data(tmp_path) -> Path:
    """A dataset YAML without class names: the annotations say them."""
    coco = shared_path("data/coco256")
    names = yaml.safe_load((coco / "coco256.yaml").read_text())["names"]
    images = sorted((coco / "images/train2017").iterdir())[: NUM_TRAIN + NUM_VAL]
    labels = coco / "labels-seg/train2017"
    parts = {"train": images[:NUM_TRAIN], "val": images[NUM_TRAIN:]}
    entries = {}
    for split, some in parts.items():
        file = tmp_path / f"{split}.json"
        file.write_text(json.dumps(as_coco(some, labels, dict(names))))
        entries[split] = {"images": str(some[0].parent), "annotations": file.name}
    path = tmp_path / "data.yaml"
    path.write_text(yaml.safe_dump(entries))
    return path


def test_an_epoch_from_coco_json_with_outlines(data, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    hyp = yaml.safe_load(DEFAULT_HYPERPARAMETERS.read_text(encoding="utf-8"))
    (tmp_path / "hyp.yaml").write_text(yaml.safe_dump({**hyp, "copy_paste": 0.5}))
    flags = [
        "--data", str(data), "--cfg", str(write_tiny_model(tmp_path)), "--weights", "", "--img",
        "64", "--batch", "3", "--workers", "0", "--device", "cpu", "--epochs", "1", "--project",
        str(tmp_path), "--name", "run", "--noplots", "--hyp", str(tmp_path / "hyp.yaml"),
    ]  # fmt: skip
    start(flags)
    with open(folder_of(flags, "run") / "results.csv", newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert all(float(row[f"train/{name}_loss"]) > 0 for name in ("box", "obj", "cls"))
    assert "left out: crowds 1" in caplog.text
    assert "nothing is pasted" not in caplog.text  # the outlines came through
