"""The check of folders named for classes: copies between classes and splits, broken images."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.data.check.planted import pattern
from utils.data.check.advice import first_steps
from utils.data.check.check_page import check_page
from utils.data.check.checking import check_dataset
from utils.data.check.corrected_copy import refuse_place
from utils.data.check.figures import measure
from utils.data.check.summary import summary_lines
from utils.data.sources.dataset import load_dataset
from utils.errors import DatasetError
from utils.files.project import PROJECT


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
    figures = measure(check, 224, np.array([[10.0, 10.0]]), 4.0)
    steps = first_steps(check, figures, "--data pets")
    lines = "\n".join(summary_lines(check, figures, steps))
    page = check_page(check, figures, steps)
    assert "Decide of which class an image is" in lines
    for text in (lines, page):
        for word in ("anchors", "Shorter side", "--fix", "object", "below 8 px", "EXIF"):
            assert word not in text
        assert "twice.png" in text and "'cat' in train" in text.replace("&#x27;", "'")
    assert sum(figures.num_images) == 18 and figures.num_left_out == (1, 0)


def test_findings_about_classes_count_images(check):
    (found,) = check.of_kind("not_in_train")
    assert found.text == "val has 1 image of it, train none"
    lines = list(summary_lines(check, measure(check, 64, np.array([[9.0, 9.0]]), 4.0), ()))
    table = lines[lines.index("") + 1 :][:4]
    assert [line.split() for line in table] == [
        ["class", "images", "in", "train", "images", "in", "val"],
        ["0", "Cat", "0", "1"],
        ["1", "cat", "5", "2"],
        ["2", "dog", "6", "3"],
    ]


def test_the_command_names_a_folder_without_images_once(tmp_path):
    for number, name in enumerate(["train/cat", "train/dog", "val/cat", "val/dog", "val/emu"]):
        (tmp_path / "pets" / name).mkdir(parents=True)
        if not name.endswith("emu"):
            pattern(number).save(tmp_path / "pets" / name / "1.png")
    command = [sys.executable, "-m", "utils.data.check", "--data", "pets", "--out", "page"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("'emu'") == 1


def test_folders_are_not_corrected(check, tmp_path):
    with pytest.raises(DatasetError, match="labelled by their folders"):
        refuse_place(check.dataset, tmp_path / "copy")


def test_folders_of_one_class_are_to_be_joined(tmp_path):
    for number, name in enumerate(["train/Cat", "train/cat", "val/Cat", "val/cat"]):
        (tmp_path / name).mkdir(parents=True)
        pattern(number).save(tmp_path / name / "1.png")
    check = check_dataset(load_dataset(tmp_path))
    figures = measure(check, 64, np.array([[16.0, 16.0]]), 4.0)
    (how,) = (x.how for x in first_steps(check, figures, "") if x.title.startswith("Join classes"))
    assert how == "move their images into one folder"
