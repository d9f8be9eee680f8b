"""The check of folders named for classes: copies between classes and splits, broken images."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from duet.utils.data.check.checking import check_dataset
from duet.utils.data.check.corrected_copy import refuse_place
from duet.utils.data.check.report import check_page, class_table, split_table, summary_lines
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.errors import DatasetError
from tests.unit.data.check.planted import pattern


def write(folder: Path) -> Path:
    """Write twelve images of two classes, with a fault of each kind."""
    number = 0
    for split, images in (("train", 4), ("val", 2)):
        for name in ("cat", "dog"):
            for _ in range(images):
                path = folder / split / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                pattern(number).save(path)
                number += 1
    shutil.copy(folder / "train/cat/0.png", folder / "val/dog/leak.png")
    shutil.copy(folder / "train/cat/1.png", folder / "train/dog/twice.png")
    shutil.copy(folder / "train/cat/2.png", folder / "train/cat/again.png")
    (folder / "train/dog/cut.png").write_bytes((folder / "train/dog/4.png").read_bytes()[:200])
    turned = pattern(98).getexif()
    turned[0x0112] = 6  # orientation: the camera was held upright
    pattern(98).save(folder / "train/dog/turned.jpg", exif=turned)
    (folder / "val" / "Cat").mkdir()
    pattern(99).save(folder / "val" / "Cat" / "1.png")
    return folder


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    return check_dataset(load_dataset(write(tmp_path_factory.mktemp("pets"))))


def test_every_fault_is_found_once_and_nothing_else(check):
    root = check.dataset.root
    found = {(x.kind, x.where.removeprefix(f"{root}/")) for x in check.findings}
    assert found == {
        ("leak", "val/dog/leak.png"),
        ("two_classes", "val/dog/leak.png"),
        ("two_classes", "train/dog/twice.png"),
        ("repeated_image", "train/dog/twice.png"),
        ("repeated_image", "train/cat/again.png"),
        ("truncated_image", "train/dog/cut.png"),
        ("similar_names", "'Cat', 'cat'"),
        ("not_in_train", "class 0, 'Cat'"),
    }
    assert len(check.findings) == len(found)
    (twice,) = (x for x in check.of_kind("two_classes") if x.where.endswith("twice.png"))
    assert twice.text == f"is of class 'cat' in train: {root}/train/cat/1.png"


def test_the_reports_say_nothing_of_boxes(check):
    lines = "\n".join(summary_lines(check, 224))
    page = check_page(check, 224)
    assert "Delete the one in the wrong folder" in lines
    for text in (lines, page):
        for word in ("Shorter side", "--fix", "objects", "below 8 px", "EXIF"):
            assert word not in text
        assert "twice.png" in text and "'cat' in train" in text.replace("&#x27;", "'")
    assert split_table(check)[1] == [["train", "12", "1"], ["val", "6", "0"]]
    assert class_table(check) == (
        ["class", "images in train", "images in val"],
        [["0 Cat", "0", "1"], ["1 cat", "5", "2"], ["2 dog", "6", "3"]],
    )
    (found,) = check.of_kind("not_in_train")
    assert found.text == "val has 1 image of it, train none"


def test_folders_are_not_corrected(check, tmp_path):
    with pytest.raises(DatasetError, match="labelled by their folders"):
        refuse_place(check.dataset, tmp_path / "copy", tmp_path / "page")
