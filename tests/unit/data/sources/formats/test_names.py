"""Image files by the names that annotations have for them: never a file of another image."""

from pathlib import Path

import pytest

from duet.utils.data.sources.formats.names import FileNames, listed_in
from duet.utils.errors import DatasetError
from tests.unit.data.formats.annotation_files import touch


def find(folder: Path, files: tuple[str, ...], *names: str) -> tuple[str, str]:
    """Return the path in the folder that is found for names, and the trouble."""
    touch(folder, *files)
    path, trouble = FileNames(folder).find(names)
    return str(path.relative_to(folder)), trouble


@pytest.mark.parametrize(
    ("files", "name", "found"),
    [
        (("a.jpg",), "a.jpg", "a.jpg"),
        (("cam1/a.jpg",), "a.jpg", "cam1/a.jpg"),
        (("a.jpg",), "bucket/cam1/a.jpg", "a.jpg"),
        (("data/cam1/a.jpg",), "cam1/a.jpg", "data/cam1/a.jpg"),
        (("cam1/a.jpg",), "bucket/cam1/a.jpg", "cam1/a.jpg"),
        (("a.jpg", "cam1/a.jpg"), "a.jpg", "a.jpg"),
        (("a.jpg", "cam1/a.jpg"), "cam1/a.jpg", "cam1/a.jpg"),
        (("x/cam1/a.jpg", "y/cam1/a.jpg", "cam2/a.jpg"), "z/cam2/a.jpg", "cam2/a.jpg"),
        (("cam1/a.jpg", "day/cam1/a.jpg"), "bucket/day/cam1/a.jpg", "day/cam1/a.jpg"),
    ],
)
def test_name_resolves_to_the_file_sharing_most_folders(tmp_path, files, name, found):
    assert find(tmp_path, files, name) == (found, "")


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (("cam2/a.jpg",), "cam1/a.jpg"),
        (("x/cam2/a.jpg",), "x/cam1/a.jpg"),
        (("cam2/a.jpg", "cam3/a.jpg"), "cam1/a.jpg"),
        (("a.jpg", "cam2/a.jpg"), "cam1/a.jpg"),
    ],
)
def test_absent_file_never_resolves_to_another_folder(tmp_path, files, name):
    assert find(tmp_path, files, name) == (name, "")


def test_ambiguous_name_is_reported(tmp_path):
    _, trouble = find(tmp_path, ("x/cam1/a.jpg", "y/cam1/a.jpg"), "cam1/a.jpg")
    assert trouble.startswith("2 files have its name")


@pytest.mark.parametrize("name", ["//etc/a.jpg", "/etc/a.jpg", "../../etc/a.jpg"])
def test_name_never_escapes_the_folder(tmp_path, name):
    assert find(tmp_path, (), name) == ("etc/a.jpg", "")


def listed(folder: Path, files: tuple[str, ...], text: str) -> list[str]:
    """Return which of the files a list names."""
    touch(folder / "images", *files)
    (folder / "list.txt").write_text(text, encoding="utf-8")
    is_listed = listed_in(folder / "list.txt", folder / "images")
    return [name for name in files if is_listed(folder / "images" / name)]


@pytest.mark.parametrize(
    ("files", "text", "found"),
    [
        (("cam1/a.jpg", "cam2/a.jpg"), "cam1/a.jpg", ["cam1/a.jpg"]),
        (("cam1/a.jpg", "cam2/a.jpg"), "images\\cam2\\a.jpg\n", ["cam2/a.jpg"]),
        (("a.jpg", "cam1/a.jpg"), "a.jpg", ["a.jpg"]),
        (("a.jpg", "cam1/a.jpg"), "./cam1/a", ["cam1/a.jpg"]),
        (("cam2/a.jpg",), "cam1/a.jpg", []),
        (("a.jpg", "b.jpg"), "\ufeffa.jpg\r\n/home/me/images/b.jpg\r\n", ["a.jpg", "b.jpg"]),
        (("a.jpg", "b 1.jpg", "c.jpg"), "a  1\nb 1\nc -1\n", ["a.jpg", "b 1.jpg", "c.jpg"]),
        (("v1.2.jpg", "v1.jpg"), "v1.2\n", ["v1.2.jpg"]),
        (("a.jpg",), '\n/\n..\n""\n', []),
    ],
)
def test_list_entry_resolves_with_its_folders(tmp_path, files, text, found):
    assert listed(tmp_path, files, text) == found


def test_ambiguous_list_line_is_an_error(tmp_path):
    with pytest.raises(DatasetError, match=r"list.txt: 'a': 2 files have its name"):
        listed(tmp_path, ("cam1/a.jpg", "cam2/a.jpg"), "a\n")
