"""What a scan found is kept: only changed images are read again, and results never differ."""

import errno
import logging
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.equal_samples import assert_same_samples
from tests.rank_threads import run_rank_threads
from utils.data.image import header
from utils.data.sources import label_cache, label_file, labels
from utils.data.sources.dataset import load_dataset
from utils.data.sources.label_cache import LabelCache
from utils.data.sources.labels import unwatched
from utils.data.sources.scan_shards import scan_shared
from utils.data.sources.splits import load_split
from utils.errors import DatasetError
from utils.files import array_cache
from utils.processes.world import ALONE

BOX, TWICE, BROKEN = "1 0.5 0.5 0.2 0.2\n", "0 0.5 0.5 0.2 0.2\n" * 2, "1 0.5\n"
LEFT_OUT = [os.fsdecode(b"cut caf\xe9\n.png"), "größe 1.png"]  # read again by each scan
POLYGON = "2 0.1 0.1 0.3 0.1 0.2 0.4\n"
LABELS = (BOX, BROKEN, TWICE, None, "", BOX + POLYGON, BOX, POLYGON, BOX, BOX)


@pytest.fixture(autouse=True)
def cache_of_all(tmp_path, monkeypatch):
    """Keep the scans of small datasets, and of files that were written a moment ago."""
    monkeypatch.setenv("DUET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(label_cache, "FEWEST_IMAGES", 1)
    monkeypatch.setattr(array_cache, "RECENT_NS", 0)


@pytest.fixture
def data(tmp_path):
    root = tmp_path / "data"
    (root / "images").mkdir(parents=True)
    (root / "labels").mkdir()
    for number, text in enumerate(LABELS):
        image = np.full((12 + number, 30 - number, 3), 20 * number, np.uint8)
        cv2.imwrite(str(root / f"images/größe {number}.png"), image)
        if text is not None:
            (root / f"labels/größe {number}.txt").write_text(text)
    (root / "images" / os.fsdecode(b"cut caf\xe9\n.png")).write_bytes(b"no image")
    yaml = root / "data.yaml"
    yaml.write_text("path: .\ntrain: images\nval: images\nnames: [a, b, c]\n")
    return yaml


@pytest.fixture
def read(monkeypatch):
    """The names of the images whose header a scan reads."""
    names, read_image_size = [], labels.read_image_size

    def counting(path, max_pixels):
        names.append(path.name)
        return read_image_size(path, max_pixels)

    monkeypatch.setattr(labels, "read_image_size", counting)
    return names


def scan(data, split="train", **settings):
    return load_split(load_dataset(data), split, **settings)


def test_nothing_is_read_again_and_the_problems_are_told_again(data, read, caplog):
    with caplog.at_level(logging.WARNING):
        first = scan(data)
    told = [record.getMessage() for record in caplog.records]
    assert len(read) == 11 and len(first) == 9 and len(told) == 4
    caplog.clear()
    read.clear()
    with caplog.at_level(logging.WARNING):
        assert_same_samples(scan(data), first)
    assert sorted(read) == LEFT_OUT
    assert [record.getMessage() for record in caplog.records] == told


def test_an_image_that_a_disk_could_not_give_once_is_there_in_the_next_run(data, monkeypatch):
    with monkeypatch.context() as failing:
        for module, name in ((header, "größe 0.png"), (label_file, "größe 7.txt")):
            fail_to_open(failing, module, name)
        assert len(scan(data)) == 7
    assert len(scan(data)) == 9


def fail_to_open(monkeypatch, module, name):
    """Let a module's reader of files fail with one file, as a network's file system may."""
    reader = "open_regular" if hasattr(module, "open_regular") else "read_bytes"
    whole = getattr(module, reader)

    def failing(path, *limits):
        if Path(path).name == name:
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return whole(path, *limits)

    monkeypatch.setattr(module, reader, failing)


@pytest.mark.parametrize(
    ("name", "text", "classes"),
    [("größe 0", "2 0.5 0.5 0.2 0.2\n", [2]), ("größe 3", BOX, [1]), ("größe 6", None, [])],
)
def test_a_label_file_that_was_changed_made_or_removed_is_read(data, read, name, text, classes):
    before = {sample.image_path.stem: sample for sample in scan(data)}
    path = data.parent / "labels" / f"{name}.txt"
    path.unlink() if text is None else path.write_text(text)
    read.clear()
    after = {sample.image_path.stem: sample for sample in scan(data)}
    assert sorted(read) == sorted([f"{name}.png", *LEFT_OUT])
    assert after[name].class_index.tolist() == classes
    del after[name], before[name]
    assert_same_samples(list(after.values()), list(before.values()))


def test_an_image_that_was_changed_added_or_removed_is_noticed(data, read):
    scan(data)
    images = data.parent / "images"
    cv2.imwrite(str(images / "größe 0.png"), np.zeros((40, 50, 3), np.uint8))
    cv2.imwrite(str(images / "a new one.png"), np.zeros((60, 70, 3), np.uint8))
    (images / "größe 9.png").unlink()
    read.clear()
    found = {sample.image_path.stem: (sample.height, sample.width) for sample in scan(data)}
    assert sorted(read) == sorted(["a new one.png", "größe 0.png", *LEFT_OUT])
    assert (found["größe 0"], found["a new one"]) == ((40, 50), (60, 70))
    assert "größe 9" not in found and len(found) == 9


def test_settings_that_change_results_have_scans_of_their_own(data, read, tmp_path):
    few = data.with_name("few.yaml")
    few.write_text(data.read_text().replace("[a, b, c]", "[a, b]"))
    assert len(scan(data)) == 9
    assert len(scan(few)) == 7  # two have objects of the third class
    assert len(scan(data, max_pixels=435)) == 6  # 18 x 24 px and below
    merged = load_split(load_dataset(data, single_class=True), "train")
    assert not merged.class_index.any() and len(merged) == 9
    read.clear()
    assert [len(scan(data)), len(scan(few)), len(scan(data, max_pixels=435))] == [9, 7, 6]
    assert len(read) == (11 - 9) + (11 - 7) + (11 - 6)  # those that are left out


def test_another_version_of_the_reader_reads_again(data, read, monkeypatch):
    scan(data)
    read.clear()
    monkeypatch.setattr(label_cache, "version_of", lambda *patterns: b"another")
    scan(data)
    assert len(read) == 11


def test_a_moved_or_copied_dataset_is_read_where_it_lies(data, read):
    scan(data)
    moved = data.parent.with_name("moved")
    data.parent.rename(moved)
    found = scan(moved / "data.yaml")
    assert len(found) == 9 and all(moved in sample.image_path.parents for sample in found)
    shutil.copytree(moved, data.parent)  # another one where the first was
    (data.parent / "labels/größe 0.txt").write_text(POLYGON)
    assert scan(data)[0].class_index.tolist() == [2]


def test_listed_images_keep_their_order_and_may_come_twice(data, read):
    listed = data.with_name("list.txt")
    names = [f"images/größe {number}.png" for number in (7, 0, 5, 0, 2)]
    listed.write_text("\n".join(names))
    data.write_text("path: .\ntrain: list.txt\nval: list.txt\nnames: [a, b, c]\n")
    first = scan(data)
    listed.write_text("\n".join(names[::-1]))
    read.clear()
    assert_same_samples(scan(data)[::-1], first)
    assert read == []


@pytest.mark.parametrize("world_size", [2, 5])
def test_ranks_share_what_one_of_them_kept(data, read, world_size):
    expected = scan(data)
    read.clear()
    for found in run_rank_threads(world_size, lambda world: scan(data, world=world)):
        assert_same_samples(found, expected)
    assert sorted(read) == LEFT_OUT  # for the rest, what one process wrote
    read.clear()
    (data.parent / "labels/größe 8.txt").write_text(TWICE)
    run_rank_threads(world_size, lambda world: scan(data, world=world))
    assert sorted(read) == [*LEFT_OUT, "größe 8.png"]  # each by one rank
    read.clear()
    assert scan(data)[-2].class_index.tolist() == [0]
    assert sorted(read) == LEFT_OUT  # for the rest, what ranks wrote


def test_a_rank_without_a_cache_goes_along_with_the_others(data, read):
    expected = scan(data)
    read.clear()
    dataset = load_dataset(data)
    images = [sample.image_path for sample in expected]

    def found_by(world):
        cache = LabelCache.of(dataset, "train", 1.0, 3, 10**8) if world.process.rank else None
        return scan_shared(images, 3, world, unwatched, cache=cache).samples

    for found in run_rank_threads(2, found_by):
        assert_same_samples(found, expected)


def test_a_small_dataset_and_one_that_is_known_write_nothing(data, tmp_path, monkeypatch):
    monkeypatch.setattr(label_cache, "FEWEST_IMAGES", 12)
    scan(data)
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(label_cache, "FEWEST_IMAGES", 11)
    scan(data)
    (path,) = (tmp_path / "cache/labels").iterdir()
    number = path.stat().st_ino
    scan(data)
    assert path.stat().st_ino == number


def test_images_that_are_none_are_an_error_from_the_cache_too(tmp_path, read):
    (tmp_path / "images").mkdir()
    for name in "ab":
        (tmp_path / f"images/{name}.png").write_bytes(b"no image")
    images = [tmp_path / "images/a.png", tmp_path / "images/b.png"]
    errors = []
    for _ in range(2):
        with pytest.raises(DatasetError) as caught:
            scan_shared(images, 3, ALONE, unwatched, cache=LabelCache("name"))
        errors.append(str(caught.value))
    assert errors[0] == errors[1] and "of 2 images none is usable" in errors[0]
    assert len(read) == 4
