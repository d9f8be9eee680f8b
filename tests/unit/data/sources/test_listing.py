"""Which files of a folder are its images, and in which order they are numbered."""

from pathlib import Path

import pytest

from utils.data.sources.image_files import has_images, list_images

# In the order of their parts: "a" is before "a b" and "a-b", though " " and "-" are before "/".
NAMES = [
    "a/z.jpg",
    "a b/y.PNG",
    "a-b/x.webp",
    "a.jpg",
    "a.jpg.d/.hidden/w.bmp",
    "b/c/d/v.tiff",
    "b.jpeg",
    "größe 图 🐈.jpg",
]


@pytest.fixture
def folder(tmp_path):
    for name in (*NAMES, "notes.txt", ".jpg", "b/jpg", "a/z.jpg.part"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "images"


def test_images_come_in_the_order_of_their_paths(folder, monkeypatch):
    found = list_images([folder])
    assert found == sorted(found)
    assert [path.relative_to(folder).as_posix() for path in found] == NAMES
    monkeypatch.chdir(folder.parent)
    assert [str(path) for path in list_images([Path("images")])] == [f"images/{x}" for x in NAMES]


def test_linked_images_are_listed_and_linked_folders_are_not_searched(folder, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/u.jpg").touch()
    (folder / "link").symlink_to(tmp_path / "other")
    (folder / "loop").symlink_to(folder)
    (folder / "one.jpg").symlink_to(tmp_path / "other/u.jpg")
    found = [path.relative_to(folder).as_posix() for path in list_images([folder])]
    assert sorted(found) == sorted([*NAMES, "one.jpg"])
    assert list_images([folder / "link"]) == [folder / "link/u.jpg"]


def test_a_folder_without_images_is_told_from_one_with_some(folder, tmp_path):
    (tmp_path / "none/inner").mkdir(parents=True)
    (tmp_path / "none/inner/a.txt").touch()
    assert has_images(folder) and has_images(folder / "b")
    assert not has_images(tmp_path / "none") and not has_images(tmp_path / "absent")
