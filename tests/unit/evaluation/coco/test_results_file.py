"""`results_file.py`: what COCO's tools read, and that they find the same figures in it."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from duet.utils.data.sources.samples import Sample
from duet.utils.evaluation.coco.results_file import CocoResults, category_ids, image_ids
from duet.utils.project import PROJECT
from tests.coco_reference import detections, ground_truth

COCO_NAMES = list(yaml.safe_load((PROJECT / "data/coco.yaml").read_text())["names"].values())
BOX, OTHER = [10, 10.25, 30.1, 30], [50, 50, 70, 80]
NO_OBJECTS = ground_truth([], [])


def write(folder: Path, names: list[str], paths: list[str], images) -> list[dict]:
    nothing = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    results = CocoResults(names, [Sample(Path(path), 90, 90, *nothing) for path in paths])
    for place, found in images.items():
        results.add(place, found, NO_OBJECTS)
    results.write(folder / "predictions.json")
    return json.loads((folder / "predictions.json").read_text())


def test_rows_have_coco_keys_ids_and_box_format(tmp_path):
    found = detections([OTHER, BOX], [0.5, 0.25], [79, 11])
    rows = write(tmp_path, COCO_NAMES, ["a/000000000139.jpg", "b/000000000285.png"], {1: found})
    assert rows == [
        {"image_id": 285, "category_id": 90, "bbox": [50, 50, 20, 30], "score": 0.5},
        {"image_id": 285, "category_id": 13, "score": 0.25,
         "bbox": [10, 10.25, float(np.float32(30.1)) - 10, 19.75]},
    ]  # fmt: skip


def test_rows_follow_image_order_without_empty_images(tmp_path):
    found, nothing = detections([BOX], [0.5], [0]), detections([], [], [])
    images = {2: found, 1: nothing, 0: found}
    rows = write(tmp_path, ["cell"], ["3.jpg", "2.jpg", "1.jpg"], images)
    assert [row["image_id"] for row in rows] == [3, 1]


def test_non_finite_boxes_are_left_out(tmp_path):
    found = detections([[np.nan, 0, 9, 9], BOX], [0.5, 0.25], [0, 0])
    rows = write(tmp_path, ["cell"], ["a.jpg"], {0: found})
    assert [row["score"] for row in rows] == [0.25]


def test_coco_is_recognised_by_its_names_in_any_order():
    ids = category_ids(COCO_NAMES)
    gaps = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
    assert ids == [number for number in range(1, 91) if number not in gaps]
    assert category_ids(COCO_NAMES[::-1]) == ids[::-1]


@pytest.mark.parametrize("names", [
    ["person", "car"], COCO_NAMES[:79], [*COCO_NAMES[:79], "brush"], [*COCO_NAMES, "brush"],
    [*COCO_NAMES[:79], "person"],
], ids=["two", "79", "one other", "81", "duplicate name"])  # fmt: skip
def test_other_classes_keep_their_index(names):
    assert category_ids(names) == list(range(len(names)))


@pytest.mark.parametrize(("paths", "ids"), [
    (["a/000000000139.jpg", "b/000000000285.jpg"], [139, 285]),
    (["a/bus.jpg", "b/139.jpg"], ["bus", "139"]),
    (["a/007.jpg", "b/7.jpg"], [1, 2]),
    (["a/7.jpg", "b/7.jpg"], [1, 2]),
    (["a/bus.jpg", "b/bus.jpg"], [1, 2]),
    (["a/²³.jpg", "a/3.jpg"], ["²³", "3"]),
    ([], []),
], ids=["numbers", "names", "equal numbers", "equal numeric names", "equal names",
        "non-decimal digits", "none"])  # fmt: skip
def test_image_ids_are_file_stems_when_unique(paths, ids):
    assert image_ids([Path(path) for path in paths]) == ids
