"""The data of a training: what is missing, and what validation has in common with it."""

from pathlib import Path

import pytest

from duet.utils.cli.train_config import parse_train_flags
from duet.utils.errors import DatasetError
from duet.utils.state.job import read_data
from duet.utils.tasks import DETECTION
from tests.unit.data.check.test_check import write_dataset

BOX = "0 0.5 0.5 0.5 0.5\n"
YAML = "train: images/train\nval: images/val\nnames: [a]\n"


def read(data: Path, *flags: str):
    return read_data(parse_train_flags(["--data", str(data), *flags]), DETECTION)


def dataset(folder: Path, split: str, bad: int, of: int, line: str) -> Path:
    """Write a dataset, of which some label files of a split have a line."""
    other = "val" if split == "train" else "train"
    labels = {f"{split}/{number}": line if number < bad else BOX for number in range(of)}
    return write_dataset(folder, {**labels, f"{other}/good": BOX}, YAML)


@pytest.mark.parametrize("split", ["train", "val"])
def test_missing_labels_above_a_tenth_end_training(tmp_path, split):
    data = dataset(tmp_path, split, 3, 6, "1 0.5 0.5 0.5 0.5\n")  # its class has no name
    with pytest.raises(DatasetError) as caught:
        read(data)
    first, head, kind, step = str(caught.value).splitlines()
    assert first == "more than a tenth of the images would not be used as labelled:"
    assert head == f"{split}: 3 of 6 images not used as labelled"
    assert kind.startswith("  images with a class that the dataset does not name: 3, ")
    assert "line 1: class 1; accepted: 0" in kind
    assert f"duet check --data {data} lists all" in step and "add --allow-missing" in step
    found = getattr(read(data, "--allow-missing"), split)
    assert len(found) == 3 and found.remarks.num_missing == 3


def test_missing_labels_up_to_a_tenth_do_not_end_training(tmp_path):
    data = dataset(tmp_path / "a", "train", 1, 10, "x\n")
    assert read(data).train.remarks.summary()[0] == "train: 1 of 10 images not used as labelled"
    data = dataset(tmp_path / "b", "train", 9, 9, f"{BOX}0 0.5 0.5 0 0.5\n{BOX}")
    remarks = read(data).train.remarks
    assert remarks.numbers == {"zero_area": 9, "repeated_object": 9}
    assert remarks.summary()[0] == "train: 9 images, all used"


def test_misnamed_label_files_count_as_missing(tmp_path):
    data = dataset(tmp_path, "train", 0, 4, BOX)
    (tmp_path / "labels/train/2.txt").rename(tmp_path / "labels/train/2.TXT")
    with pytest.raises(DatasetError, match="1 of 4 images not used as labelled"):
        read(data)


def test_images_in_both_splits_are_reported(tmp_path, caplog):
    data = dataset(tmp_path, "train", 0, 3, BOX)
    data.write_text(YAML.replace("images/val", "images/train"))
    remarks = read(data).val.remarks
    assert remarks.numbers == {"in_both": 3} and remarks.num_missing == 0
    assert "val: 3 images are also in train, such as " in caplog.text
    assert "the model learns them, so their figures say nothing about new images" in caplog.text


def test_moved_dataset_error_says_how_to_resume(tmp_path):
    with pytest.raises(DatasetError, match="if it was moved, resume with --data and its place"):
        read(tmp_path / "gone.yaml", "--resume", str(tmp_path))


def test_split_without_objects_is_named(tmp_path):
    data = write_dataset(tmp_path, {"train/a": BOX, "val/b": ""}, YAML)
    with pytest.raises(DatasetError, match="^val: no labelled object in 1 usable image;"):
        read(data)
