"""--fix writes labels that are right into a new folder, and touches nothing else."""

import os
import shutil
from pathlib import Path

import pytest

from tests.unit.data.check.planted import GOOD, LABELS, pattern, write_planted
from utils.data.check.checking import check_dataset
from utils.data.check.corrected_copy import refuse_place, write_corrected
from utils.data.records.command.packing import pack_samples
from utils.data.sources.dataset import load_dataset
from utils.data.sources.dataset_yaml import DatasetSpec
from utils.data.sources.formats.format import AnnotatedFolder
from utils.data.sources.splits import load_split
from utils.errors import DatasetError

MENDED = ("out_of_range", "overshoot", "zero_area", "repeated_object", "unknown_class")


def contents(folder):
    """Every file of a folder: its bytes and its time."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def write_dataset(folder, labels, names="[a, b]"):
    """A dataset with these label files, by the image's path below images/."""
    for number, (name, text) in enumerate(labels.items()):
        image = folder / "images" / name
        image.parent.mkdir(parents=True, exist_ok=True)
        pattern(number).save(image)
        before, _, after = f"images/{name}".rpartition("images/")
        label = (folder / f"{before}labels/{after}").with_suffix(".txt")
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text(text, encoding="utf-8")
    (folder / "data.yaml").write_text(f"train: images\nval: images\nnames: {names}\n")
    return folder / "data.yaml"


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fix")
    data = write_planted(folder / "planted")
    before = contents(data.parent)
    lines = write_corrected(check_dataset(load_dataset(data)), folder / "new")
    assert contents(data.parent) == before, "an original was changed"
    return folder / "new", lines


def test_the_copy_has_no_fault_in_its_labels(copied):
    folder, lines = copied
    check = check_dataset(load_dataset(folder / "planted.yaml"))
    assert not check.left_out and not [x for kind in MENDED for x in check.of_kind(kind)]
    assert not check.of_kind("broken_label") and not check.of_kind("missing_image")
    assert lines[0].startswith("corrected copy: 19 images; objects: 3 clipped, 3 dropped (objects")
    assert lines[-1] == f"train with --data {folder / 'planted.yaml'}"


def test_objects_are_clipped_dropped_or_kept_as_they_are(copied):
    folder, _ = copied
    labels = {path.stem: path.read_text() for path in (folder / "labels/train").iterdir()}
    assert labels["good"] == LABELS["train/good"]
    assert labels["polygon"] == LABELS["train/polygon"]
    assert labels["class"] == labels["flat"] == labels["twice"] == GOOD
    assert labels["far"] == "0 0.85 0.5 0.3 0.2\n"  # from 0.7 to 1.1, of which 1 is left
    assert labels["over"] == f"{GOOD}0 0.8975 0.5 0.205 0.25\n"  # from 0.795 to 1.005
    assert labels["over_point"] == "0 1 0.5 0.9 0.1 0.9 0.9\n"
    assert labels["background"] == "" and "unlabelled" not in labels


def test_images_are_links_and_what_cannot_be_decided_is_listed(copied):
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


def test_training_reads_the_links_and_their_labels(copied):
    folder, _ = copied
    samples = load_split(load_dataset(folder / "planted.yaml"), "train")
    found = {sample.image_path.stem: sample for sample in samples}
    assert found["far"].boxes_cxcywh_norm.tolist() == [pytest.approx([0.85, 0.5, 0.3, 0.2])]
    assert found["polygon"].polygons_norm.num_points.tolist() == [3]


def test_names_of_any_kind_and_images_of_one_stem_keep_their_labels(tmp_path):
    names = ["a/images/x.jpg", "b/images/x.jpg", "一 猫\n.png", "caf\udce9.jpg", "x.jpg", "x.png"]
    try:
        data = write_dataset(tmp_path / "old", dict.fromkeys(names, GOOD))
    except (OSError, UnicodeError):
        pytest.skip("this file system takes no such names")
    write_corrected(check_dataset(load_dataset(data)), tmp_path / "new")
    copy = load_dataset(tmp_path / "new/data.yaml")
    samples = load_split(copy, "train")
    assert sorted(len(sample.class_index) for sample in samples) == [2] * 6
    targets = {os.fsencode(os.readlink(sample.image_path)) for sample in samples}
    assert targets == {os.fsencode(tmp_path / "old/images" / name) for name in names}
    assert copy.val == copy.train


def test_a_folder_that_exists_is_not_written_over(tmp_path):
    data = write_dataset(tmp_path / "old", {"x.jpg": GOOD})
    (tmp_path / "new").mkdir()
    with pytest.raises(DatasetError, match="--fix .*new exists and is not written over"):
        write_corrected(check_dataset(load_dataset(data)), tmp_path / "new")


@pytest.mark.parametrize("place", ["images", "labels", "labels/inner"])
def test_a_folder_among_images_or_labels_is_refused(tmp_path, place):
    dataset = load_dataset(write_dataset(tmp_path / "old", {"x.jpg": GOOD}))
    inside = f"--fix .*{place}/new would lie in .*{place.split('/')[0]}, whose files are"
    with pytest.raises(DatasetError, match=inside):
        refuse_place(dataset, tmp_path / "old" / place / "new")
    refuse_place(dataset, tmp_path / "old/new")


def test_a_folder_that_would_become_that_of_the_labels_is_refused(tmp_path):
    dataset = load_dataset(write_dataset(tmp_path / "old", {"x.jpg": GOOD}))
    shutil.rmtree(tmp_path / "old/labels")
    with pytest.raises(DatasetError, match="--fix .*labels would lie in .*labels, whose files"):
        refuse_place(dataset, tmp_path / "old/labels")


def test_a_folder_among_annotations_is_refused(tmp_path):
    part = AnnotatedFolder("Pascal VOC", tmp_path / "Annotations", tmp_path / "JPEGImages")
    one_file = AnnotatedFolder("COCO JSON", tmp_path / "a.json", tmp_path / "pictures")
    for folder in (part.annotations, part.images, one_file.images):
        folder.mkdir()
    dataset = DatasetSpec("d", tmp_path, (part,), (one_file,), (), ("a",))
    for name in ("Annotations/new", "JPEGImages/new", "pictures/a/b"):
        with pytest.raises(DatasetError, match=f"{name} would lie in .*, whose files"):
            refuse_place(dataset, tmp_path / name)
    refuse_place(dataset, tmp_path / "labels/new")


def test_images_whose_names_clash_when_they_are_made_apart_are_all_in_the_copy(tmp_path):
    names = ["a_png.png", "a.jpg", "a.png", "a_png_png.jpg"]
    labels = {name: f"0 0.5 0.5 0.{number} 0.5\n" for number, name in enumerate(names, start=1)}
    for folder in ("images", "labels"):
        (tmp_path / "old" / folder).mkdir(parents=True)
    data = tmp_path / "old/data.yaml"
    for number, name in enumerate(names):
        pattern(number).save(tmp_path / "old/images" / name)
        (tmp_path / "old/labels" / f"{name[:-4]}.txt").write_text(labels[name])
    listed = [*names, "a.png"]  # one of them twice
    (tmp_path / "old/l.txt").write_text("".join(f"./images/{name}\n" for name in listed))
    data.write_text("train: l.txt\nval: l.txt\nnames: [a]\n")
    write_corrected(check_dataset(load_dataset(data)), tmp_path / "new")
    samples = load_split(load_dataset(tmp_path / "new/data.yaml"), "train")
    found = {os.path.basename(os.readlink(x.image_path)): x.boxes_cxcywh_norm for x in samples}
    # a.jpg and a.png have one label file, which was written last for a.png.
    widths = {"a_png.png": 0.1, "a.jpg": 0.3, "a.png": 0.3, "a_png_png.jpg": 0.4}
    assert {name: boxes[0, 2] for name, boxes in found.items()} == pytest.approx(widths)
    assert len(samples) == 4


def test_nothing_is_left_behind_where_no_image_can_be_used(tmp_path):
    data = write_dataset(tmp_path / "old", {"x.jpg": "a line that is none\n"})
    with pytest.raises(DatasetError, match="no image is left that could be used"):
        write_corrected(check_dataset(load_dataset(data)), tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_packed_images_are_to_be_unpacked_first(tmp_path):
    data = write_dataset(tmp_path / "old", {"x.jpg": GOOD})
    dataset = load_dataset(data)
    samples = {"train": load_split(dataset, "train"), "val": load_split(dataset, "val")}
    pack_samples(samples, dataset.class_names, tmp_path / "packed/data.yaml", 1 << 20)
    shutil.rmtree(tmp_path / "old")
    check = check_dataset(load_dataset(tmp_path / "packed/data.yaml"))
    assert [image.is_used for image in check.images] == [True, True]
    assert {finding.kind for finding in check.findings} == {"leak"}
    with pytest.raises(DatasetError, match="the images are packed; unpack them first"):
        write_corrected(check, tmp_path / "new")
    assert Path(str(check.images[0].source.path)).name == "x.jpg"
