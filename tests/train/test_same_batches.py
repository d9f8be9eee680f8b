"""One dataset in several label formats trains on the same bytes, and a real VOC folder trains."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import pytest

from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from tests.shared_files import shared_path
from tests.small import write_tiny_model
from tests.train.short_runs import start
from tests.unit.data.batch_digest import EVERYTHING, digest

CLASSES = ("circle", "square", "triangle")
# Their sides are powers of two, so that no coordinate is rounded in any format.
SIZES = ((64, 128), (128, 64), (128, 128), (64, 64))
NUM_IMAGES = {"train": 10, "val": 4}


class Thing(NamedTuple):
    """An object: the box of an outline is the smallest around it."""

    class_index: int
    box_xyxy: tuple[int, int, int, int]
    outline_xy: list[list[int]]  # empty: it has only a box


class Labelled(NamedTuple):
    name: str  # of the image, without suffix
    size: tuple[int, int]  # height, width
    things: list[Thing]


def things_of(rng: np.random.Generator, size: tuple[int, int]) -> list[Thing]:
    """Some objects, half of them with an outline."""
    height, width = size
    things = []
    for index in range(int(rng.integers(1, 4))):
        left, top = rng.integers(0, (width // 2, height // 2)).tolist()
        right, bottom = left + int(rng.integers(8, 32)), top + int(rng.integers(8, 32))
        triangle = [[left, top], [right, top + 3], [left + 5, bottom]]
        box = left, top, right, bottom
        things.append(Thing(int(rng.integers(len(CLASSES))), box, triangle if index % 2 else []))
    return things


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> tuple[Path, dict[str, list[Labelled]]]:
    """A folder with the images of each split in a folder of its name, and what is on them."""
    folder, rng = tmp_path_factory.mktemp("drawn"), np.random.default_rng(5)
    splits = {}
    for split, number in NUM_IMAGES.items():
        (folder / split).mkdir()
        splits[split] = []
        for index in range(number):
            size = SIZES[index % len(SIZES)]
            name = f"{split} {index}"
            noise = rng.integers(0, 256, (*size, 3), np.uint8)
            cv2.imwrite(str(folder / split / f"{name}.png"), noise)
            # The last one is a background, and has no label file.
            things = things_of(rng, size) if index < number - 1 else []
            splits[split].append(Labelled(name, size, things))
    return folder, splits


def write_yolo(root: Path, split: str, images: list[Labelled]) -> None:
    shutil.copytree(root / split, root / "images" / split)
    (root / "labels" / split).mkdir(parents=True)
    for name, (height, width), things in images:
        lines = []
        for number, (left, top, right, bottom), outline in things:
            values = [
                (left + right) / 2 / width, (top + bottom) / 2 / height,
                (right - left) / width, (bottom - top) / height,
            ]  # fmt: skip
            if outline:
                values = [part for x, y in outline for part in (x / width, y / height)]
            lines.append(" ".join(map(str, [number, *values])))
        if lines:
            (root / "labels" / split / f"{name}.txt").write_text("\n".join(lines))
    with open(root / "data.yaml", "a") as file:
        file.write(f"{split}: images/{split}\n")
        if split == "val":
            file.write(f"names: {json.dumps(CLASSES)}\n")


def write_voc(root: Path, split: str, images: list[Labelled]) -> None:
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "ImageSets/Main" / f"{split}.txt").write_text(
        "".join(f"{image.name}\n" for image in images)
    )
    for name, (height, width), things in images:
        shutil.move(root / split / f"{name}.png", root / "JPEGImages")
        objects = ""
        for number, box, outline in things:
            corners = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
            content = "".join(f"<{tag}>{value}</{tag}>" for tag, value in corners)
            points = "".join(
                f"<x{index}>{x}</x{index}><y{index}>{y}</y{index}>"
                for index, (x, y) in enumerate(outline, start=1)
            )
            objects += f"<object><name>{CLASSES[number]}</name><bndbox>{content}</bndbox>"
            objects += f"<polygon>{points}</polygon>" * bool(outline) + "</object>"
        if things:
            size = f"<size><width>{width}</width><height>{height}</height></size>"
            (root / "Annotations" / f"{name}.xml").write_text(
                f"<annotation>{size}{objects}</annotation>"
            )


def write_coco(root: Path, split: str, images: list[Labelled]) -> None:
    """As Roboflow writes it; the numbers of images and classes have holes."""
    document: dict[str, list] = {"images": [], "annotations": [], "categories": []}
    for index, (name, (height, width), things) in enumerate(images):
        document["images"].append(
            {"id": 7 * index, "file_name": f"{name}.png", "width": width, "height": height}
        )
        for number, (left, top, right, bottom), outline in things:
            document["annotations"].append({
                "id": len(document["annotations"]), "image_id": 7 * index, "iscrowd": 0,
                "category_id": 3 * number + 1, "area": 1,
                "bbox": [left, top, right - left, bottom - top],
                "segmentation": [[part for point in outline for part in point]] if outline else [],
            })  # fmt: skip
    for number, class_name in enumerate(CLASSES):
        document["categories"].append({"id": 3 * number + 1, "name": class_name})
    (root / split / "_annotations.coco.json").write_text(json.dumps(document))


WRITERS: dict[str, Callable[[Path, str, list[Labelled]], None]] = {
    "YOLO": write_yolo,
    "Pascal VOC": write_voc,
    "COCO JSON": write_coco,
}


def written(kind: str, dataset: tuple[Path, dict[str, list[Labelled]]], root: Path) -> Path:
    """Write a dataset in a format; return what --data names."""
    folder, splits = dataset
    shutil.copytree(folder, root)
    for split, images in splits.items():
        WRITERS[kind](root, split, images)
    return root / "data.yaml" if kind == "YOLO" else root


def digests(data: Path) -> list[str]:
    """Digests of augmented batches of two epochs, and of those of a validation."""
    dataset = load_dataset(data)
    assert dataset.class_names == CLASSES
    train, val = (load_split(dataset, split) for split in ("train", "val"))
    loader = TrainLoader(train, TrainRecipe(96, 4, EVERYTHING, seed=3))
    batches = itertools.chain(loader.epoch(0), loader.epoch(4), ValLoader(val, 64, 2, workers=0))
    return [digest(batch) for batch in batches]


@pytest.fixture(scope="module")
def expected(dataset, tmp_path_factory) -> list[str]:
    return digests(written("YOLO", dataset, tmp_path_factory.mktemp("yolo") / "data"))


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "YOLO"])
def test_the_same_dataset_gives_the_same_bytes_in_each_format(kind, dataset, expected, tmp_path):
    assert len(set(expected)) == len(expected) == 2 * 3 + 2
    assert digests(written(kind, dataset, tmp_path / "data")) == expected


def train_an_epoch(data: Path, tmp_path: Path) -> None:
    run = start([
        "--data", str(data), "--cfg", str(write_tiny_model(tmp_path)), "--img", "64",
        "--batch", "4", "--epochs", "1", "--workers", "0", "--device", "cpu", "--noplots",
        "--noautoanchor", "--project", str(tmp_path), "--name", "run",
    ])  # fmt: skip
    with open(run / "results.csv", newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert float(row["train/box_loss"]) > 0 and float(row["val/cls_loss"]) > 0


def test_an_epoch_trains_from_a_real_voc_folder(tmp_path):
    """The first images of bccd's lists, with its own XML files."""
    source, root = shared_path("data/bccd/voc"), tmp_path / "bccd"
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    for split, number in (("train", 4), ("val", 2)):
        stems = (source / f"ImageSets/Main/{split}.txt").read_text().split()[:number]
        (root / f"ImageSets/Main/{split}.txt").write_text("\n".join(stems))
        for stem in stems:
            shutil.copy(source / f"JPEGImages/{stem}.jpg", root / "JPEGImages")
            shutil.copy(source / f"Annotations/{stem}.xml", root / "Annotations")
    train_an_epoch(root, tmp_path)
