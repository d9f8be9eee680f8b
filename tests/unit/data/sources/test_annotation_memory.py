"""A large COCO file is read once, until it or what it stands for changes."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from duet.utils.data.sources import annotations
from duet.utils.data.sources.annotations import read_annotations
from duet.utils.data.sources.formats import coco
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.files import array_cache

OBJECTS = (
    {"bbox": [1, 2, 3.5, 4], "segmentation": [[1, 2, 4.5, 2, 4.5, 6]]},
    {"bbox": [0, 0, 9, 9], "iscrowd": 1},
    {"bbox": [0, 0, 9, 9.25]},
)


@pytest.fixture(autouse=True)
def keep_all(tmp_path, monkeypatch):
    """Keep small files too, and files that were written a moment ago."""
    monkeypatch.setenv("DUET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(annotations, "FEWEST_IMAGES", 1)
    monkeypatch.setattr(array_cache, "RECENT_NS", 0)


@pytest.fixture
def times(monkeypatch):
    """The files that are parsed."""
    paths, read_instances = [], coco.read_instances

    def noted(path):
        paths.append(path)
        return read_instances(path)

    monkeypatch.setattr(coco, "read_instances", noted)
    return paths


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images" / "größe").mkdir(parents=True)
    names, size = [f"größe/{n}.jpg" for n in range(3)], {"width": 20, "height": 10}
    for name in names:
        (tmp_path / "images" / name).touch()
    content = {
        "images": [{"id": n, "file_name": x, **size} for n, x in enumerate(names)],
        "categories": [{"id": 1, "name": "Hund \N{DOG}"}, {"id": 2, "name": "unused"}],
        "annotations": [
            {"id": n, "image_id": n % 2, "category_id": 1, **one} for n, one in enumerate(OBJECTS)
        ] + [{"id": 9, "image_id": 2, "category_id": 1, "bbox": [1]}],
    }  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(content))
    return AnnotatedFolder("COCO JSON", tmp_path / "a.json", tmp_path / "images")


def test_annotations_are_recalled_as_they_were_read(folder, times):
    first, again = read_annotations(folder), read_annotations(folder)
    assert len(times) == 1
    for name in ("class_names", "paths", "broken"):
        assert tuple(getattr(first, name)) == tuple(getattr(again, name))
    assert first.left_out == again.left_out == {"crowds": 1} and any(first.broken)
    for name in ("sizes", "starts", "class_index", "boxes_xyxy"):
        one, other = getattr(first, name), getattr(again, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(first.polygons.points_xy, again.polygons.points_xy)
    np.testing.assert_array_equal(first.polygons.starts, again.polygons.starts)


def test_a_changed_file_or_list_and_moved_images_are_read_again(folder, times, tmp_path):
    read_annotations(folder)
    text = folder.annotations.read_text()
    folder.annotations.write_text(text.replace("9.25", "8.25"))
    assert read_annotations(folder).boxes_xyxy.max() == 9
    assert len(times) == 2
    shutil.move(tmp_path / "images" / "größe" / "0.jpg", tmp_path / "images" / "0.jpg")
    for image in (tmp_path / "images" / "größe").iterdir():
        shutil.move(image, tmp_path / "images" / image.name)
    assert read_annotations(folder).paths[0] == str(tmp_path / "images" / "0.jpg")
    assert len(times) == 3
    (tmp_path / "list.txt").write_text("0.jpg\n")
    listed = folder._replace(image_list=tmp_path / "list.txt")
    assert len(read_annotations(listed)) == 1 and len(times) == 4
    (tmp_path / "list.txt").write_text("0.jpg\n1.jpg\n")
    assert len(read_annotations(listed)) == 2 and len(times) == 5


def test_a_warning_is_logged_each_time(folder, times, caplog):
    text = folder.annotations.read_text()
    folder.annotations.write_text(text.replace("unused", "Hund \\ud83d\\udc15"))
    for number in (1, 2):
        read_annotations(folder)
        assert len(times) == number
        assert f"{folder.annotations}: categories of one name are taken for" in caplog.text
        caplog.clear()


def test_a_small_file_keeps_nothing(folder, times, tmp_path, monkeypatch):
    monkeypatch.setattr(annotations, "FEWEST_IMAGES", 4)
    for _ in range(2):
        read_annotations(folder)
    assert len(times) == 2 and not (tmp_path / "cache").exists()
