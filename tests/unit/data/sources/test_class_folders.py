"""Images in folders named for their classes: which folders count, what the classes are called."""

import logging
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from duet.utils.data.sources.class_folders import ClassFolders, similar_names
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.remarks import Remarks
from duet.utils.data.sources.splits import images_of, load_split
from duet.utils.errors import DatasetError, UserError

PIXEL = cv2.imencode(".png", np.zeros((12, 16, 3), np.uint8))[1].tobytes()


def write(folder: Path, *names: str) -> Path:
    """Write an image of 16x12 px under each name."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PIXEL)
    return folder


def labelled(folder: Path, split: str = "train", **arguments) -> dict[str, str]:
    """Return the class of each image of a split, by its path in the folder."""
    dataset = load_dataset(folder, **arguments)
    names = dataset.class_names
    return {
        str(image.path.relative_to(folder)): names[image.class_index]
        for image in images_of(dataset, split)
    }


def error_of(*arguments, **named) -> str:
    with pytest.raises(UserError) as caught:
        load_dataset(*arguments, **named)
    return str(caught.value)


def test_class_folder_image_is_one_full_object(tmp_path):
    write(tmp_path, "train/dog/1.png", "train/cat/2.png", "train/cat/1.png", "val/dog/1.png")
    dataset = load_dataset(tmp_path)
    assert dataset.class_names == ("cat", "dog")
    train = load_split(dataset, "train")
    assert [str(sample.image_path.relative_to(tmp_path)) for sample in train] == [
        "train/cat/1.png", "train/cat/2.png", "train/dog/1.png"
    ]  # fmt: skip
    assert train.class_index.tolist() == [0, 0, 1]
    assert train.boxes_cxcywh_norm.tolist() == [[0.5, 0.5, 1, 1]] * 3
    assert train.sizes.tolist() == [[12, 16]] * 3
    assert load_split(dataset, "val").class_index.tolist() == [1]


def test_class_names_are_sorted_by_code_point(tmp_path):
    names = ["Zebra", "ant", "10", "9", "a b", "étoile", "三角", "-x", "no", "Ant"]
    write(tmp_path, *(f"{split}/{name}/1.png" for split in ("train", "val") for name in names))
    dataset = load_dataset(tmp_path)
    # As Python, and so the public loader of such folders, sorts them.
    assert dataset.class_names == (
        "-x", "10", "9", "Ant", "Zebra", "a b", "ant", "no", "étoile", "三角"
    )  # fmt: skip
    assert len(load_split(dataset, "train")) == len(names)


def test_class_images_lie_at_any_depth_and_junk_is_skipped(tmp_path):
    write(tmp_path, "train/a/x/y/1.png", "train/b/1.png", "val/a/1.png", ".cache/z/1.png",
          "train/.ipynb_checkpoints/1.png", "train/__MACOSX/a/1.png")  # fmt: skip
    (tmp_path / "train" / "b" / "notes.md").write_text("x")
    (tmp_path / "train" / "list.csv").write_text("x")
    os.mkfifo(tmp_path / "train" / "b" / "pipe")
    (tmp_path / "train" / "itself").symlink_to(tmp_path / "train" / "itself")
    assert labelled(tmp_path) == {"train/a/x/y/1.png": "a", "train/b/1.png": "b"}


def test_empty_class_folders_are_reported_and_ignored(tmp_path, caplog):
    write(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/1.png")
    (tmp_path / "train" / "empty").mkdir()
    (tmp_path / "val" / "b").mkdir()  # it has images in train
    with caplog.at_level(logging.INFO):
        assert load_dataset(tmp_path).class_names == ("a", "b")
    assert "['empty']" in caplog.text and "'b'" not in caplog.text


@pytest.mark.parametrize(
    "names",
    [
        ("train/images/1.png", "val/images/1.png"),
        ("train/images/1.png", "train/labels/x.png"),
        ("images/train/1.png", "images/val/1.png"),
        ("train/1.png", "val/1.png", "test/1.png"),
        ("train/1.png", "val/1.png", "extra/1.png"),
        ("a/1.png", "b/2.png", "3.png"),
        ("a/1.png",),
    ],
)
def test_other_image_folders_are_not_read_as_classes(tmp_path, names):
    assert "no dataset is recognised" in error_of(write(tmp_path, *names))


def write_yaml(folder: Path, **keys: object) -> Path:
    path = folder / "pets.yaml"
    path.write_text(yaml.safe_dump({"train": "train", "val": "val", **keys}), encoding="utf-8")
    return path


def test_yaml_names_set_class_order_and_must_be_complete(tmp_path):
    write(tmp_path, "train/b/1.png", "train/a/1.png", "val/a/1.png")
    dataset = load_dataset(write_yaml(tmp_path))
    assert dataset.class_names == ("a", "b")
    assert dataset.train == (ClassFolders(tmp_path / "train"),)
    dataset = load_dataset(write_yaml(tmp_path, names=["b", "a", "c"]))
    assert load_split(dataset, "train").class_index.tolist() == [1, 0]
    dataset = load_dataset(write_yaml(tmp_path, names=["a", "c"]))
    with pytest.raises(DatasetError, match=r"class 'b'.*\['a', 'c'\]; add it to 'names'"):
        images_of(dataset, "train")


def test_folders_that_cannot_be_classes_are_an_error(tmp_path):
    write(tmp_path / "one", "train/a/1.png", "val/a/1.png")
    assert "at least 2 folders of images" in error_of(write_yaml(tmp_path / "one"))
    write(tmp_path / "one", os.fsdecode(b"train/\xff/1.png"))
    assert r"b'\xff' is not named in UTF-8" in error_of(tmp_path / "one")
    write(tmp_path / "one", "train/b/1.png")
    shutil.rmtree(tmp_path / "one/train" / os.fsdecode(b"\xff"))
    assert "--single-cls" in error_of(tmp_path / "one", single_class=True)


def test_label_files_keep_class_named_folders_a_box_dataset(tmp_path):
    write(tmp_path, "images/train/cat/1.png", "images/train/dog/1.png", "images/val/cat/1.png")
    for name in ("train/cat/1.txt", "val/cat/1.txt"):
        path = tmp_path / "labels" / name
        path.parent.mkdir(parents=True)
        path.write_text("0 0.5 0.5 0.2 0.2\n")
    keys = {"train": "images/train", "names": ["cat", "dog"]}
    dataset = load_dataset(write_yaml(tmp_path, **keys), splits=("train",))
    assert load_split(dataset, "train").boxes_cxcywh_norm.tolist() == [
        pytest.approx([0.5, 0.5, 0.2, 0.2])
    ]


def test_images_beside_class_folders_are_only_counted(tmp_path):
    write(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/1.png", "train/preview.png",
          "val/._1.png", "._2.png")  # fmt: skip
    dataset = load_dataset(tmp_path)
    remarks = Remarks()
    assert len(images_of(dataset, "train", remarks=remarks)) == 2
    assert len(images_of(dataset, "val", remarks=remarks)) == 1
    assert remarks.numbers == {"beside_classes": 1}
    assert "preview.png" in remarks.examples["beside_classes"]


def test_similar_names_ignore_case_blanks_and_letter_forms():
    names = [
        "Cat",
        "dog",
        "cat ",
        "traffic light",
        "traffic_light",
        "ＣＡＴ",
        "Traffic-Light",
        "cats",
    ]
    assert similar_names(names) == [
        ("Cat", "cat ", "ＣＡＴ"),
        ("traffic light", "traffic_light", "Traffic-Light"),
    ]
    assert similar_names(["-", "_", "", "strasse", "straße 2", "1", "11"]) == []
    assert similar_names(["1_11", "11_1", "111", "2-1"]) == []
    assert similar_names(["sign_2_1", "sign 2_1"]) == [("sign_2_1", "sign 2_1")]
