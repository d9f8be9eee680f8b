"""What is advised first, of made-up images."""

from pathlib import Path

import numpy as np
import pytest

from utils.data.check.advice import first_steps, percent
from utils.data.check.checking import Check
from utils.data.check.figures import measure
from utils.data.check.inspection import CheckedImage
from utils.data.check.kinds import Finding
from utils.data.image.fingerprint import NO_FINGERPRINT
from utils.data.sources.dataset_yaml import DatasetSpec
from utils.data.sources.labels import ImageFile

ANCHORS = np.array([[16.0, 16.0], [64.0, 64.0]])


def image(split="train", classes=(0, 1), side=64, is_used=True):
    """An image of 640x640 px with objects of a side in pixels."""
    boxes = np.array([[0.5, 0.5, side / 640, side / 640]] * len(classes), np.float32).reshape(-1, 4)
    return CheckedImage(
        split, ImageFile(Path("a.jpg")), (640, 640), is_used, np.array(classes, np.int64), boxes,
        NO_FINGERPRINT,
    )  # fmt: skip


def advised(images, *findings, names=("a", "b"), image_size=640):
    spec = DatasetSpec("d", Path("."), (Path("t"),), (Path("v"),), (), names)
    splits = list(dict.fromkeys(item.split for item in images))
    check = Check(spec, splits, images, list(findings))
    figures = measure(check, image_size, ANCHORS, 4.0)
    return {step.title: step.how for step in first_steps(check, figures, "--data d.yaml")}


GOOD = [image() for _ in range(20)] + [image("val") for _ in range(5)]


def test_nothing_is_advised_for_a_good_dataset():
    assert advised(GOOD) == {}


@pytest.mark.parametrize(
    ("side", "image_size", "larger"),
    [
        (6, 640, "--img 864"),
        (1, 640, "--img 1280"),
        (7.9, 640, "--img 672"),
        (1, 1024, "--img 1536"),
    ],
)  # fmt: skip
def test_small_objects_ask_for_a_larger_image_or_tiles(side, image_size, larger):
    # 6 px become 8 at 853, of which 864 is the next multiple of 32; never more than twice as much.
    scaled = side * 640 / image_size
    how = advised([image(side=scaled)] + GOOD[:5] + GOOD[20:], image_size=image_size)
    title = "Show small objects larger"
    assert title not in how  # 2 of 22 are small, which is less than a tenth
    how = advised([image(side=scaled)] * 20 + GOOD[20:], image_size=image_size)[title]
    assert larger in how and f"--tile {image_size}" in how


def test_anchors_that_reach_too_few_are_to_be_fitted():
    images = [*GOOD, *[image(side=300) for _ in range(5)]]  # 300 is over 4 times 64
    how = advised(images)
    assert "python -m utils.data.anchors --data d.yaml --img 640" in how["Fit anchors"]


def test_rare_classes_are_to_be_shown_more_often():
    images = [image(classes=[0]) for _ in range(198)] + [image(classes=[0, 1]), image("val")]
    how = advised([*images, image()])["Show rare classes more often"]
    assert "--repeat-factor 0.05" in how  # 10 of 200 images


def test_a_leak_comes_before_lost_images_and_those_before_small_objects():
    images = [image(side=6) for _ in range(19)] + [image(is_used=False), image("val", side=6)]
    leak = Finding("leak", "val", "v.jpg", "in train: t.jpg", 20, 3)
    titles = list(advised(images, leak))
    assert titles == [
        "Take training images out of validation",
        "Show small objects larger",
        "Repair the images that are left out",
    ]
    half = [image(is_used=False) for _ in range(20)]
    assert list(advised([*half, *images], leak))[1] == "Repair the images that are left out"


@pytest.mark.parametrize(
    ("kind", "title", "removal"),
    [
        ("leak", "Take training images out of validation", "delete one of each two"),
        ("repeated_image", "Remove copies of images", "delete the copies"),
    ],
)
def test_a_file_that_is_named_twice_is_not_to_be_deleted(tmp_path, kind, title, removal):
    (tmp_path / "folder").mkdir()
    one, same, other = (
        image()._replace(source=ImageFile(tmp_path / name))
        for name in ("a.jpg", "folder/../a.jpg", "b.jpg")
    )
    images = [one, same, other, *GOOD]
    named_twice = Finding(kind, "train", "a.jpg", "listed twice", 1, 0)
    copy = Finding(kind, "train", "b.jpg", "a.jpg", 2, 0)
    assert f": {removal}" in advised(images, copy)[title]
    assert "list" not in advised(images, copy)[title]
    both = advised(images, named_twice, copy)[title]
    assert f": {removal}; where both are one file, take it out of one list" in both
    alone = advised(images, named_twice)[title]
    assert "take each out of one list, and delete none" in alone and removal not in alone


@pytest.mark.parametrize(
    ("part", "text"),
    [(0, "0.0 %"), (1, "100 %"), (0.5, "50 %"), (0.034, "3.4 %"), (0.0002, "below 0.1 %"),
     (0.9996, "over 99.9 %"), (0.995, "99.5 %")],
)  # fmt: skip
def test_only_none_is_0_and_only_all_is_100_per_cent(part, text):
    assert percent(part) == text
