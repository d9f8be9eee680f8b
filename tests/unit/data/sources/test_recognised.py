"""Folders as people have them: what is taken for what, and what is said of the rest."""

import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.image_sources import list_images
from duet.utils.data.sources.remarks import Remarks
from duet.utils.data.sources.splits import images_of
from duet.utils.errors import UserError


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def images(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "")


def dataset_yaml(**keys: object) -> str:
    return json.dumps({"train": "images/train", "val": "images/val", "names": ["a"], **keys})


SPLIT = images("images/train/a.jpg", "images/val/b.jpg", "images/test/c.jpg")
BOX = '<box label="cat" xtl="1" ytl="1" xbr="5" ybr="5"/>'
CVAT = f'<annotations><image name="a.jpg" width="9" height="9">{BOX}</image></annotations>'
TASKS = json.dumps([{"annotations": [{"result": []}], "data": {"image": "a.jpg"}}])


def names_in(folder: Path, **arguments) -> dict[str, list[str]]:
    """Return the images of each split, relative to the folder."""
    spec = load_dataset(folder, **arguments)
    return {
        split: [str(image.path.relative_to(folder)) for image in list_images(getattr(spec, split))]
        for split in ("train", "val", "test")
        if getattr(spec, split)
    }


def error_of(argument: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        load_dataset(argument)
    return str(caught.value)


SETTINGS = "classes = 2\nnames = data/obj.names\ntrain = data/train.txt\nbackup = backup/\n"
# Files of a folder, the images of each split, and the names of the classes.
LAYOUTS = [
    *(({**SPLIT, name: dataset_yaml(), "hyp.yaml": "lr0: 0.1", "b.yaml": "["},
       {"train": ["images/train/a.jpg"], "val": ["images/val/b.jpg"]}, ("a",))
      for name in ("data.yaml", "dataset.yaml", "cells.yml")),
    # Roboflow's Darknet export has images beside labels.
    ({f"{split}/{name}": text for split in ("train", "valid")
      for name, text in (("a.jpg", ""), ("a.txt", ""), ("_darknet.labels", "cat\ndog"))},
     {"train": ["train/a.jpg"], "val": ["valid/a.jpg"]}, ("cat", "dog")),
    # CVAT's YOLO export.
    ({**images("obj_train_data/a b.jpg", "obj_valid_data/x/b.jpg"), "obj.names": "猫\ndog\n",
      "obj.data": f"{SETTINGS}valid = data/valid.txt\n",
      "train.txt": "data/obj_train_data/a b.jpg\n", "valid.txt": "data/obj_valid_data/x/b.jpg\n"},
     {"train": ["obj_train_data/a b.jpg"], "val": ["obj_valid_data/x/b.jpg"]}, ("猫", "dog")),
]  # fmt: skip


@pytest.mark.parametrize(("files", "expected", "class_names"), LAYOUTS)
def test_folder_is_recognised_as_its_dataset(tmp_path, files, expected, class_names):
    write(tmp_path, **files)
    assert names_in(tmp_path) == expected
    assert load_dataset(tmp_path).class_names == class_names


@pytest.mark.parametrize("names", ["classes.txt", "labels/classes.txt", "labels/train/classes.txt"])
def test_split_folders_need_only_class_names(tmp_path, names):
    write(tmp_path, **SPLIT, **{names: "cat\ndog\n\n"})
    assert names_in(tmp_path) == {
        "train": ["images/train/a.jpg"],
        "val": ["images/val/b.jpg"],
        "test": ["images/test/c.jpg"],
    }
    assert load_dataset(tmp_path).class_names == ("cat", "dog")
    write(tmp_path / "labels", **{"val/classes.txt": "cat"})  # of an earlier day
    assert load_dataset(tmp_path).class_names == ("cat", "dog")


@pytest.mark.parametrize("place", ["images/", ""])
def test_undivided_folder_gets_a_drawn_split(tmp_path, place, caplog):
    caplog.set_level(logging.INFO)
    names = [f"{place}{letter}.jpg" for letter in "abcdef"]
    write(tmp_path, **images(*names), **{"classes.txt": "cat"})
    assert names_in(tmp_path, train_part=0.5) == {"train": names} and len(caplog.messages) == 1
    assert names_in(tmp_path, splits=["val"]) == {"train": names}
    assert load_dataset(tmp_path).train_part == 0.8
    assert "has no splits; one is drawn: 80 % for training" in caplog.messages[-1]
    assert load_dataset(tmp_path, splits=["train"]).train_part is None


@pytest.mark.parametrize("folder", ["annots", "Annots", "annotations", "Annotations", "annot"])
def test_flat_voc_folder_is_recognised_and_split(tmp_path, folder):
    """As public sets of fruit, racoons and hard hats come."""
    names = [f"{number:02}" for number in range(20)]
    box = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    text = f"<annotation><object><name>fruit</name>{box}</object></annotation>"
    write(tmp_path, **{f"{folder}/{name}.xml": text for name in names})
    (tmp_path / "images").mkdir()
    for number, name in enumerate(names):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{name}.png")
    dataset = load_dataset(tmp_path)
    parts = [{image.path.name for image in images_of(dataset, x)} for x in ("train", "val")]
    assert dataset.class_names == ("fruit",) and len(parts[0]) > len(parts[1]) > 0
    assert parts[0].isdisjoint(parts[1]) and len(parts[0] | parts[1]) == 20


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({"classes.txt": "a\n\nb"}, "classes.txt: line 2 is blank"),
        ({"classes.txt": "a\nb\na"}, "classes.txt: duplicate name ['a']"),
        ({"classes.txt": "a\nb", "labels/classes.txt": "b\na"}, "name other classes"),
        ({"obj.data": "train = train.txt"}, "no class names; add a line"),
        ({"obj.data": "names = obj.names\ntrain=x"}, "obj.names: No such file"),
        ({"classes.txt": ""}, "no dataset is recognised"),
        (
            {"a.yaml": dataset_yaml(), "b.yaml": dataset_yaml()},
            "several dataset YAMLs; give one: FOLDER/a.yaml, FOLDER/b.yaml",
        ),
    ],
)
def test_unusable_files_are_an_error(tmp_path, files, part):
    write(tmp_path, **SPLIT, **files)
    assert part.replace("FOLDER", str(tmp_path)) in error_of(tmp_path)


def test_unrecognised_folder_lists_the_known_formats(tmp_path):
    write(tmp_path, **SPLIT)
    text = error_of(tmp_path)
    for part in (
        str(tmp_path), "data.yaml", "dataset.yaml", "CVAT for images 1.1", "Label Studio JSON",
        "OpenImages CSV", "Pascal VOC", "classes.txt", "obj.names",
    ):  # fmt: skip
        assert part in text
    assert len(text) < 1000


def test_one_of_two_formats_is_used_and_reported(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write(tmp_path, **images("images/a.jpg"))
    write(tmp_path, **{"annotations.xml": CVAT, "tasks.json": TASKS})
    spec = load_dataset(tmp_path, splits=("train",))
    assert [entry.format for entry in spec.train] == ["CVAT for images 1.1"]
    (line,) = caplog.messages
    assert line.endswith("is read as CVAT for images 1.1")
    caplog.clear()
    write(tmp_path, **SPLIT, **{"data.yaml": dataset_yaml(), "classes.txt": "a"})
    assert load_dataset(tmp_path).class_names == ("a",)
    (line,) = caplog.messages
    assert line.endswith("is read as the dataset YAML data.yaml")


def test_annotations_of_unknown_splits_are_reported(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    parts = [
        f'<image name="{name}.jpg" subset="{subset}">{BOX}</image>'
        for name, subset in (("a", "Train"), ("b", "Validation"), ("c", "later"))
    ]
    write(tmp_path, **images("images/a.jpg"))
    write(tmp_path, **{"annotations.xml": f"<annotations>{''.join(parts)}</annotations>"})
    spec = load_dataset(tmp_path, splits=())
    assert [len(entries) for entries in (spec.train, spec.val)] == [1, 1]
    assert "annotations.xml: 'later' belongs to no split and is ignored" in caplog.text


def test_annotations_other_than_boxes_are_counted(tmp_path):
    more = '<tag label="b"/><points label="b"/><tag label="b"/>'
    write(tmp_path, **images("images/a.jpg"))
    write(tmp_path, **{"annotations.xml": CVAT.replace("</image>", f"{more}</image>")})
    remarks = Remarks("train")
    images_of(load_dataset(tmp_path, splits=()), "train", remarks=remarks)
    assert remarks.numbers == {"points": 1, "tags of images": 2}
    assert remarks.examples["points"] == f"left out of {tmp_path}/annotations.xml"


def test_pipes_and_broken_links_are_skipped(tmp_path):
    write(tmp_path, **SPLIT, **{"classes.txt": "a"})
    for name in ("data.yaml", "x.yaml", "annotations.xml", "x.json", "y.csv", "obj.data"):
        os.mkfifo(tmp_path / name)
    for name in ("dataset.yaml", "z.json", "labels"):
        (tmp_path / name).symlink_to(tmp_path / "nowhere")
    (tmp_path / "valid").symlink_to(tmp_path)  # a folder in itself
    assert load_dataset(tmp_path).class_names == ("a",)


def text_of_csv(tmp_path: Path, *rows: str) -> str:
    write(tmp_path, **images("a.jpg"))
    table = "\n".join(["ImageID,LabelName,XMin,YMin,XMax,YMax,IsGroupOf", *rows])
    write(tmp_path, **{"train-annotations-bbox.csv": table, "b/validation-bbox.csv": table})
    entry = {"images": ".", "annotations": "train-annotations-bbox.csv"}
    write(tmp_path, **{"data.yaml": json.dumps({"train": entry, "val": entry})})
    return error_of(tmp_path)


def test_annotations_without_classes_explain_why(tmp_path):
    text = text_of_csv(tmp_path, "a,cat,wide,0,.2,.3,0")
    assert "its annotations name no class: a.jpg: line 2: no box in " in text
    assert "correct that" in text and "'names'" in text
    assert "left out: crowds (2)" in text_of_csv(tmp_path, *["a,cat,.1,0,.2,.3,1"] * 2)
    assert "images without a row (1)" in text_of_csv(tmp_path, "other,cat,.1,0,.2,.3,0")
    assert len(text_of_csv(tmp_path, f"a,cat,{'x' * 1000},0,.2,.3,0")) < 1000


def test_conventional_yaml_name_must_describe_a_dataset(tmp_path):
    write(tmp_path, **images("images/a.jpg"), **{"annotations.xml": CVAT})
    write(tmp_path, **{"dataset.yml": "licence: MIT", "data.yaml": "description: cats"})
    assert load_dataset(tmp_path, splits=()).class_names == ("cat",)
    write(tmp_path, **{"dataset.yml": "names: [cat]"})
    assert "dataset.yml: key 'train' is missing" in error_of(tmp_path)
    write(tmp_path, **{"data.yaml": "train: ["})  # whatever it was meant to be
    assert "data.yaml: line 2: invalid YAML" in error_of(tmp_path)
