"""--fix writes a corrected copy; class folders have no labels to correct, and their own check."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.check.checking import check_dataset
from duet.utils.data.check.corrected_copy import refuse_place, write_corrected
from duet.utils.data.check.report import check_page, class_table, split_table, summary_lines
from duet.utils.data.records.packing import pack_samples
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.label_file import parse_labels
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import DatasetError
from tests.unit.data.check.test_check import GOOD, LABELS, pattern, write_dataset, write_planted

YAML = "train: images\nval: images\nnames: [a, b]\n"
MENDED = ("out_of_range", "overshoot", "zero_area", "repeated_object", "unknown_class")


def contents(folder):
    """Every file of a folder: its bytes and its time."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fix")
    data = write_planted(folder / "planted")
    before = contents(data.parent)
    lines = write_corrected(check_dataset(load_dataset(data)), folder / "new")
    assert contents(data.parent) == before, "an original was changed"
    return folder / "new", lines


def test_corrected_copy_has_no_label_fault(copied):
    folder, lines = copied
    check = check_dataset(load_dataset(folder / "planted.yaml"))
    assert all(image.is_used for image in check.images)
    assert not [x for kind in MENDED for x in check.of_kind(kind)]
    assert not check.of_kind("broken_label") and not check.of_kind("unusable_image")
    assert lines[0] == "corrected copy: 19 images"
    assert lines[-1] == f"train with --data {folder / 'planted.yaml'}"


def test_jpeg_without_end_mark_is_rewritten_whole(tmp_path):
    data = write_dataset(tmp_path / "old", {"a.jpg": GOOD, "b.jpg": GOOD}, YAML)
    image = tmp_path / "old/images/a.jpg"
    whole = image.read_bytes()
    image.write_bytes(whole[:-2])
    check = check_dataset(load_dataset(data, splits=("train",)))
    assert [x.kind for x in check.findings if x.kind != "leak"] == ["no_end_mark"] * 2
    write_corrected(check, tmp_path / "new")
    copy = tmp_path / "new/images/train/a.jpg"
    assert copy.read_bytes() == whole and not copy.is_symlink()
    assert (tmp_path / "new/images/train/b.jpg").is_symlink()


def test_objects_are_clipped_dropped_or_kept_unchanged(copied):
    folder, _ = copied
    labels = {path.stem: path.read_text() for path in (folder / "labels/train").iterdir()}
    assert labels["good"] == LABELS["train/good"]
    assert labels["polygon"] == LABELS["train/polygon"]
    assert labels["class"] == labels["flat"] == labels["twice"] == GOOD
    assert labels["far"] == "0 0.85 0.5 0.3 0.2\n"  # from 0.7 to 1.1, of which 1 is left
    assert labels["over"] == f"{GOOD}0 0.8975 0.5 0.205 0.25\n"  # from 0.795 to 1.005
    assert labels["over_point"] == "0 1 0.5 0.9 0.1 0.9 0.9\n"
    assert labels["background"] == "" and "unlabelled" not in labels


@pytest.mark.parametrize("end", ["1.00005", "0.99999999995"])
def test_triangle_ending_at_the_lower_edge_is_no_tracked_box(tmp_path, end):
    """Its first four numbers would be a box within the image, the last two a score and an id."""
    triangle = f"0 0.3 0.4 0.1 0.6 0.2 {end}\n"
    data = write_dataset(tmp_path / "old", {"a.jpg": triangle, "b.jpg": GOOD}, YAML)
    write_corrected(check_dataset(load_dataset(data, splits=("train",))), tmp_path / "new")
    labels = parse_labels((tmp_path / "new/labels/train/a.txt").read_bytes(), num_classes=2)
    assert labels.polygons_norm.outline(0).tolist()[-1] == [np.float32(0.2), 1]


def test_copy_links_images_and_lists_undecided_ones(copied):
    folder, _ = copied
    links = list((folder / "images").rglob("*.*"))
    assert len(links) == 19 and all(path.is_symlink() and path.is_file() for path in links)
    listed = (folder / "left_out.txt").read_text()
    for name in (
        "words.txt: line 3", "words.txt: line 6", "bytes.txt", "pixels.txt: line 3", "negative.txt",
        "gone.jpg", "text.jpg", "short.jpg", "behind_header.png", "tiny.png",
    ):  # fmt: skip
        assert name in listed
    assert not {"words", "bytes", "pixels"} & {path.stem for path in links}


def test_odd_and_equal_names_keep_their_own_labels(tmp_path):
    names = ["a/images/x.jpg", "b/images/x.jpg", "一 猫\n.png", "caf\udce9.jpg", "x.jpg", "x.png"]
    try:
        data = write_dataset(tmp_path / "old", dict.fromkeys(names, GOOD), YAML)
    except (OSError, UnicodeError):
        pytest.skip("this file system takes no such names")
    write_corrected(check_dataset(load_dataset(data)), tmp_path / "new")
    copy = load_dataset(tmp_path / "new/data.yaml")
    samples = load_split(copy, "train")
    assert sorted(len(sample.class_index) for sample in samples) == [2] * 6
    targets = {os.fsencode(os.readlink(sample.image_path)) for sample in samples}
    assert targets == {os.fsencode(tmp_path / "old/images" / name) for name in names}
    assert [x.class_index.tolist() for x in load_split(copy, "val")] == [[0, 1]] * 6


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("old", "--fix .*old already exists; choose a new folder"),
        ("old/images/new", "would be inside .*images; choose another folder"),
        ("old/labels/inner/new", "would be inside .*labels; choose another folder"),
        ("page/new", "would be inside .*page; choose another folder"),
        ("page", "would be inside .*page; choose another folder"),
    ],
)
def test_copy_inside_other_files_is_refused(tmp_path, place, message):
    dataset = load_dataset(write_dataset(tmp_path / "old", {"x.jpg": GOOD}, YAML))
    with pytest.raises(DatasetError, match=message):
        refuse_place(dataset, tmp_path / place, tmp_path / "page")
    refuse_place(dataset, tmp_path / "old/new", tmp_path / "page")


def test_copy_without_usable_images_leaves_nothing(tmp_path):
    data = write_dataset(tmp_path / "old", {"x.jpg": "a line that is none\n"}, YAML)
    with pytest.raises(DatasetError, match="no usable images are left"):
        write_corrected(check_dataset(load_dataset(data)), tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_packed_images_are_checked_but_not_corrected(tmp_path):
    data = write_dataset(tmp_path / "old", {"x.jpg": GOOD}, YAML)
    dataset = load_dataset(data)
    samples = {split: load_split(dataset, split) for split in ("train", "val")}
    pack_samples(samples, dataset.class_names, tmp_path / "packed/data.yaml", 1 << 20)
    shutil.rmtree(tmp_path / "old")
    check = check_dataset(load_dataset(tmp_path / "packed/data.yaml"))
    assert [image.is_used for image in check.images] == [True, True]
    assert {finding.kind for finding in check.findings} == {"leak"}
    with pytest.raises(DatasetError, match="the images are packed; unpack them first"):
        write_corrected(check, tmp_path / "new")


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


def test_class_folder_check_finds_each_fault_once(check):
    root = check.dataset.root
    found = {(x.kind, x.where.removeprefix(f"{root}/")) for x in check.findings}
    assert found == {
        ("leak", "val/dog/leak.png"),
        ("two_classes", "val/dog/leak.png"),
        ("two_classes", "train/dog/twice.png"),
        ("repeated_image", "train/dog/twice.png"),
        ("repeated_image", "train/cat/again.png"),
        ("unusable_image", "train/dog/cut.png"),
        ("similar_names", "'Cat', 'cat'"),
        ("not_in_train", "class 0, 'Cat'"),
    }
    assert len(check.findings) == len(found)
    (twice,) = (x for x in check.of_kind("two_classes") if x.where.endswith("twice.png"))
    assert twice.text == f"is of class 'cat' in train: {root}/train/cat/1.png"


def test_class_folder_reports_do_not_mention_boxes(check):
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


def test_class_folders_are_not_corrected(check, tmp_path):
    with pytest.raises(DatasetError, match="labelled by their folders"):
        refuse_place(check.dataset, tmp_path / "copy", tmp_path / "page")
