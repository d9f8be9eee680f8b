"""`merge` in a dataset YAML: two names of one class, in each kind of labels."""

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from duet.utils.data.check.__main__ import run as check
from duet.utils.data.records.__main__ import main as records
from duet.utils.data.sources.coco_annotations import own_annotations
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.dataset_yaml import DatasetSpec
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import DatasetError
from tests.unit.data.formats import annotation_files

OBJECTS = ("RBC", "rbc", "WBC", "rbc")  # an image each


def write_images(folder: Path) -> None:
    (folder / "images").mkdir(parents=True)
    for number in range(len(OBJECTS)):
        image = np.random.default_rng(number).integers(0, 256, (100, 200, 3), np.uint8)
        cv2.imwrite(str(folder / "images" / f"{number}.png"), image)


def write_yolo(folder: Path) -> dict[str, object]:
    (folder / "labels").mkdir()
    for number, name in enumerate(OBJECTS):
        index = ["RBC", "rbc", "WBC"].index(name)
        (folder / "labels" / f"{number}.txt").write_text(f"{index} 0.5 0.5 0.25 0.25\n")
    return {"train": "images", "val": "images", "names": ["RBC", "rbc", "WBC"]}


def write_voc(folder: Path) -> dict[str, object]:
    for number, name in enumerate(OBJECTS):
        text = annotation_files.voc([annotation_files.voc_box(10, 10, 30, 30, name)])
        annotation_files.write(folder / "xml" / f"{number}.xml", text)
    entry = {"images": "images", "annotations": "xml"}
    return {"train": entry, "val": entry}


def write_coco(folder: Path) -> dict[str, object]:
    ids = {"RBC": 1, "WBC": 2, "rbc": 3}
    objects = [
        annotation_files.coco_object([9, 9, 9, 9], image=7 + number, category_id=ids[name])
        for number, name in enumerate(OBJECTS)
    ]
    categories = [{"id": number, "name": name} for name, number in ids.items()]
    names = [f"{number}.png" for number in range(len(OBJECTS))]
    content = annotation_files.coco(objects, names, categories=categories)
    annotation_files.write(folder / "a.json", content)
    entry = {"images": "images", "annotations": "a.json"}
    return {"train": entry, "val": entry}


def write_named_voc(folder: Path) -> dict[str, object]:
    return {**write_voc(folder), "names": ["RBC", "WBC"]}


def write_folders(folder: Path) -> dict[str, object]:
    for number, name in enumerate(OBJECTS):
        path = folder / "classes" / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / f"{number}.png").rename(path)
    return {"train": "classes", "val": "classes"}


KINDS = [write_yolo, write_voc, write_named_voc, write_coco, write_folders]


def write(folder: Path, kind, **more: object) -> Path:
    write_images(folder)
    document = {"path": ".", **kind(folder), "merge": {"rbc": "RBC"}, **more}
    (folder / "cells.yaml").write_text(yaml.safe_dump(document))
    return folder / "cells.yaml"


def classes_of(samples) -> list[int]:
    return [int(x) for _, x in sorted(zip(samples.paths, samples.class_index, strict=True),
                                      key=lambda pair: Path(pair[0]).name)]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_merged_names_become_one_class(tmp_path, kind):
    dataset = load_dataset(write(tmp_path / "data", kind))
    assert dataset.class_names == ("RBC", "WBC")
    for split in ("train", "val"):
        assert classes_of(load_split(dataset, split)) == [0, 0, 1, 0]
    assert own_annotations(dataset, "val") is None  # which have other classes


def test_class_can_be_renamed_by_merging(tmp_path):
    data = write(tmp_path / "data", write_voc, merge={"rbc": "red cell", "RBC": "red cell"})
    dataset = load_dataset(data)
    assert dataset.class_names == ("red cell", "WBC")
    assert classes_of(load_split(dataset, "train")) == [0, 0, 1, 0]


@pytest.mark.parametrize("kind", [write_yolo, write_voc])
def test_check_copy_and_pack_use_merged_classes(tmp_path, kind, monkeypatch):
    data = write(tmp_path / "data", kind)
    words = ["--data", str(data), "--out", str(tmp_path / "page")]
    found = check([*words, "--fix", str(tmp_path / "fixed")])
    assert not found.of_kind("similar_names")
    assert [image.class_index.tolist() for image in found.images[:4]] == [[0], [0], [1], [0]]
    packed = tmp_path / "packed"
    monkeypatch.setattr("sys.argv", ["", "pack", "--data", str(data), "--out", str(packed)])
    records()
    for place in (tmp_path / "fixed", packed):
        dataset = load_dataset(place / "cells.yaml", splits=("train",))
        assert dataset.class_names == ("RBC", "WBC")
        assert classes_of(load_split(dataset, "train")) == [0, 0, 1, 0]


@pytest.mark.parametrize("kind", [write_yolo, write_voc, write_folders])
def test_check_suggests_merging_similar_names(tmp_path, kind):
    found = check(
        ["--data", str(write(tmp_path / "data", kind, merge=None)), "--out", str(tmp_path)]
    )
    (finding,) = found.of_kind("similar_names")
    assert finding.text == "is it one class? merge: {'RBC': 'rbc'}"  # rbc has more objects
    merge = yaml.safe_load(finding.text.partition("? ")[2])["merge"]
    (tmp_path / "again").mkdir()
    merged = load_dataset(write(tmp_path / "again" / "data", kind, merge=merge))
    assert set(merged.class_names) == {"rbc", "WBC"}


@pytest.mark.parametrize(
    ("kind", "merge", "text"),
    [
        (write_yolo, {"Rbc": "RBC"}, "'merge' has ['Rbc'], which 'names' lacks"),
        (write_voc, {"Rbc": "RBC"}, "'merge' has ['Rbc'], but the classes are ['RBC', 'WBC', 'rb"),
        (write_voc, {"rbc": "RBC", "RBC": "WBC"}, "'RBC' is merged itself"),
        (write_voc, {10: "RBC"}, "put numbers in quotes"),
        (write_voc, ["rbc"], "accepted: a mapping of names, such as {rbc: RBC}"),
    ],
)
def test_impossible_merge_is_refused(tmp_path, kind, merge, text):
    with pytest.raises(DatasetError) as caught:
        load_dataset(write(tmp_path / "data", kind, merge=merge))
    assert text in str(caught.value)


def test_classes_are_merged_once_not_for_each_image():
    names = tuple(f"class {number}" for number in range(500))
    dataset = DatasetSpec("", Path(), (), (), (), names, merge={"class 3": "class 1"}).merged()
    calls, labels = [], np.array([1, 2, 3, 4])
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        found = [dataset.class_of(labels).tolist() for _ in range(100)]
    finally:
        sys.setprofile(None)
    assert found == [[1, 2, 1, 3]] * 100
    assert len(calls) < 500 * 10  # 200,000 if the names are merged for each image
