"""Annotations are kept until a file changes that their reader sees."""

import dataclasses
import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tests.outlines import assert_same_polygons
from utils.data.sources.formats import table, voc
from utils.data.sources.formats.format import (
    AnnotatedFolder,
    Annotations,
    FileNotes,
    Format,
    ImageLabels,
    collect,
)
from utils.data.sources.formats.table import read_annotations
from utils.files import array_cache
from utils.polygons import Polygons


@pytest.fixture(autouse=True)
def cache_of_all(tmp_path, monkeypatch):
    """Keep annotations of few images, and of files that were written a moment ago."""
    monkeypatch.setenv("DUET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(table, "FEWEST_IMAGES", 1)
    monkeypatch.setattr(array_cache, "RECENT_NS", 0)


def example(folder, notes):
    notes.class_names = ["cat", "Hund 🐕"]
    first = ImageLabels(Path("/data/images/caf\udce9 \ud800.jpg"), (40, 60), left_out=["crowds"])
    first.add("cat", (1.5, 2, 30, float("nan")))
    first.add_outline("none", np.array([[1.0, 2], [3, 4.25], [0, 9]]))
    yield first
    yield ImageLabels(Path("b.jpg"), broken="why: ä")


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "data"
    (folder / "images/inner").mkdir(parents=True)
    (folder / "annotations/inner").mkdir(parents=True)
    (folder / "images/inner/a.jpg").touch()
    for name in ("annotations/inner/a.xml", "train.txt", "classes.csv"):
        (folder / name).write_text(name)
    return AnnotatedFolder("test", folder / "annotations", folder / "images", folder / "train.txt")


@pytest.fixture
def times(monkeypatch):
    """What a format that reads `example` was asked to read."""
    times = []

    def read(folder, notes):
        times.append(folder)
        yield from example(folder, notes)

    def also_reads(folder):
        return [folder.images.parent / "classes.csv"]

    kind = Format("test", lambda path: True, lambda path: {}, read, also_reads)
    monkeypatch.setattr(table, "formats", lambda: (kind,))
    return times


def test_they_come_back_and_are_read_once(dataset, times):
    notes = FileNotes()
    expected = collect(example(dataset, notes), notes)
    for _ in range(3):
        found = read_annotations(dataset)
        for field in dataclasses.fields(Annotations):
            value, wanted = getattr(found, field.name), getattr(expected, field.name)
            assert type(value) is type(wanted), field.name
            if isinstance(wanted, Polygons):
                assert_same_polygons(value, wanted)
            elif isinstance(wanted, np.ndarray):
                assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape), field.name
                np.testing.assert_array_equal(value, wanted, err_msg=field.name)
            else:
                assert value == wanted, field.name
    assert len(times) == 1


@pytest.mark.parametrize(
    ("changed", "times_read"),
    [
        ("annotations/inner/a.xml", 2),
        ("annotations/b.xml", 2),
        ("train.txt", 2),
        ("classes.csv", 2),
        ("images/inner/b.png", 2),
        ("images/inner/a.jpg", 1),  # the content of an image does not count
    ],
)
def test_each_file_that_a_reader_sees_counts(dataset, times, changed, times_read, tmp_path):
    read_annotations(dataset)
    (tmp_path / "data" / changed).write_text("longer than it was before")
    for _ in range(2):
        read_annotations(dataset)
    assert len(times) == times_read


def test_parts_of_one_file_and_paths_from_here_are_kept_apart(
    dataset, times, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    parts = [Path(os.path.relpath(path)) for path in dataset[1:4]]
    others = [dataset, dataset._replace(image_list=None), dataset._replace(subset="val")]
    others.append(AnnotatedFolder("test", *parts))  # its images have other paths too
    for folder in others:
        read_annotations(folder)
    assert times == others


def test_a_file_that_a_disk_could_not_give_once_is_read_again(tmp_path, monkeypatch):
    times, read_xml = [], voc.read_xml

    def failing(path, *limits):
        times.append(path)
        if len(times) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read_xml(path, *limits)

    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jpg").touch()
    (data / "a.xml").write_text("<annotation><filename>a.jpg</filename></annotation>")
    monkeypatch.setattr(voc, "read_xml", failing)
    folder = AnnotatedFolder("Pascal VOC", data, data)
    assert list(read_annotations(folder).broken.values()) == [f"a.xml: {os.strerror(errno.EIO)}"]
    for _ in range(2):
        assert not read_annotations(folder).broken
    assert len(times) == 2


def test_what_was_just_written_or_is_small_is_read_again(dataset, times, monkeypatch, tmp_path):
    monkeypatch.setattr(table, "FEWEST_IMAGES", 3)
    for _ in range(2):
        read_annotations(dataset)
    monkeypatch.setattr(table, "FEWEST_IMAGES", 2)
    monkeypatch.setattr(array_cache, "RECENT_NS", 10**12)
    for _ in range(2):
        read_annotations(dataset)
    assert len(times) == 4 and not (tmp_path / "cache").exists()
