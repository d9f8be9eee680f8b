"""Annotations are kept until a file changes that their reader sees."""

import dataclasses
import errno
import os

import numpy as np
import pytest

from tests.outlines import assert_same_polygons
from utils.data.sources.formats import kept_annotations, voc
from utils.data.sources.formats.annotations import Annotations, AnnotationsBuilder
from utils.data.sources.formats.format import AnnotatedFolder, Format
from utils.data.sources.formats.kept_annotations import read_kept
from utils.files import array_cache, file_state
from utils.polygons import Polygons


@pytest.fixture(autouse=True)
def cache_of_all(tmp_path, monkeypatch):
    """Keep annotations of few images, and of files that were written a moment ago."""
    monkeypatch.setenv("DUET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_annotations, "FEWEST_IMAGES", 1)
    monkeypatch.setattr(file_state, "RECENT_NS", 0)


def example() -> Annotations:
    builder = AnnotationsBuilder(("cat", "Hund 🐕"))
    builder.image("/data/images/caf\udce9 \ud800.jpg", (40, 60))
    builder.object("cat", (1.5, 2, 30, float("nan")))
    builder.outline("none", np.array([[1.0, 2], [3, 4.25], [0, 9]]))
    builder.leave_out("crowds")
    builder.image("b.jpg")
    builder.refuse("why: ä")
    builder.image("/c.jpg", (1, 1))
    builder.object("Hund 🐕", (0, 0, 1, 1))
    return builder.build()


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
def reader():
    """A reader of `example`, and how often it has read."""
    times = []

    def read(folder):
        times.append(folder)
        return example()

    def also_reads(folder):
        return [folder.images.parent / "classes.csv"]

    return Format("test", lambda path: True, lambda path: {}, read, also_reads), times


def assert_same_annotations(found, expected):
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


def test_they_come_back_and_are_read_once(dataset, reader):
    kind, times = reader
    for _ in range(3):
        assert_same_annotations(read_kept(dataset, kind), example())
    assert len(times) == 1


@pytest.mark.parametrize(
    "changed",
    [
        "annotations/inner/a.xml",
        "annotations/b.xml",
        "train.txt",
        "classes.csv",
        "images/inner/b.png",
    ],
)
def test_each_file_that_a_reader_sees_counts(dataset, reader, changed, tmp_path):
    kind, times = reader
    read_kept(dataset, kind)
    (tmp_path / "data" / changed).write_text("longer than it was before")
    read_kept(dataset, kind)
    read_kept(dataset, kind)
    assert len(times) == 2
    (tmp_path / "data" / changed).unlink()
    read_kept(dataset, kind)
    assert len(times) == 3


@pytest.mark.parametrize(("code", "times_read"), [(errno.EIO, 2), (errno.ENOENT, 1)])
def test_a_file_that_a_disk_could_not_give_once_is_read_again(
    tmp_path, monkeypatch, code, times_read
):
    times, read_xml = [], voc.read_xml

    def failing(path, *limits):
        times.append(path)
        if len(times) == 1:
            raise OSError(code, os.strerror(code), str(path))
        return read_xml(path, *limits)

    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jpg").touch()
    (data / "a.xml").write_text("<annotation><filename>a.jpg</filename></annotation>")
    monkeypatch.setattr(voc, "read_xml", failing)
    folder = AnnotatedFolder("voc", data, data)
    assert list(read_kept(folder, voc.VOC).broken.values()) == [f"a.xml: {os.strerror(code)}"]
    for _ in range(2):
        assert len(read_kept(folder, voc.VOC).broken) == 2 - times_read
    assert len(times) == times_read


def test_the_content_of_images_does_not_count(dataset, reader):
    kind, times = reader
    read_kept(dataset, kind)
    (dataset.images / "inner/a.jpg").write_bytes(b"another picture")
    read_kept(dataset, kind)
    assert len(times) == 1


def test_parts_of_one_file_are_kept_apart(dataset, reader):
    kind, times = reader
    others = [dataset, dataset._replace(image_list=None), dataset._replace(subset="val")]
    for folder in others * 2:
        read_kept(folder, kind)
    assert times == others


def test_a_path_from_here_is_another_than_from_the_root(dataset, reader, monkeypatch, tmp_path):
    kind, times = reader
    read_kept(dataset, kind)
    monkeypatch.chdir(tmp_path)
    parts = [os.path.relpath(path) for path in dataset[1:4]]
    read_kept(AnnotatedFolder("test", *map(type(tmp_path), parts)), kind)
    assert len(times) == 2  # the paths of its images start where the folder's does


def test_what_was_just_written_or_is_small_is_read_again(dataset, reader, monkeypatch, tmp_path):
    kind, times = reader
    monkeypatch.setattr(kept_annotations, "FEWEST_IMAGES", 4)
    for _ in range(2):
        read_kept(dataset, kind)
    monkeypatch.setattr(kept_annotations, "FEWEST_IMAGES", 3)
    monkeypatch.setattr(file_state, "RECENT_NS", 10**12)
    for _ in range(2):
        read_kept(dataset, kind)
    assert len(times) == 4 and not (tmp_path / "cache").exists()


def test_an_error_is_no_annotation(dataset, reader):
    kind, _ = reader

    def broken(folder):
        raise ValueError("broken")

    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            read_kept(dataset, kind._replace(read=broken))


def test_what_no_reader_can_have_found_is_read_again(dataset, reader):
    """Even with a checksum that is right."""
    kind, times = reader
    read_kept(dataset, kind)
    version = (
        array_cache.version_of(*kept_annotations._READERS)
        + kept_annotations._state(dataset, kind)
    )  # fmt: skip
    (path,) = array_cache.cache_folder().glob("annotations/*")
    whole = array_cache.read_arrays("annotations", path.stem, version)
    wrong = []
    for name, array in whole.items():
        as_numbers = np.nan_to_num(array)
        negative, of_floats = -1 - as_numbers.astype(np.int64), as_numbers.astype(np.float32)
        values = (array[:-1], negative, of_floats, array[None], array.reshape(-1)[0])
        wrong += [(name, np.asarray(value)) for value in values]
    wrong.append(("class_index", whole["class_index"] + 3))
    wrong.append(("starts", whole["starts"][::-1].copy()))
    wrong.append(("broken/images", whole["broken/images"] + 3))
    wrong.append(("paths/content", whole["paths/content"] | 0x80))
    for name, value in wrong:
        array_cache.write_arrays("annotations", path.stem, version, {**whole, name: value})
        assert_same_annotations(read_kept(dataset, kind), example())
    assert len(times) == 1 + len(wrong)
    for name in whole:
        rest = {other: array for other, array in whole.items() if other != name}
        array_cache.write_arrays("annotations", path.stem, version, rest)
        assert_same_annotations(read_kept(dataset, kind), example())
