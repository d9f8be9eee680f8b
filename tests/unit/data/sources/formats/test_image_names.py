"""Image files by the names that annotations have for them: never a file of another image."""

from pathlib import Path, PurePosixPath

import pytest

from utils.data.sources.formats.image_names import ImageNames


def find(folder: Path, files: tuple[str, ...], *names: str) -> tuple[str, str]:
    """Return the path in the folder that is found for names, and the trouble."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    path, trouble = ImageNames(folder).find(map(PurePosixPath, names))
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
    ],
)
def test_a_name_is_the_file_whose_folders_it_shares(tmp_path, files, name, found):
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
def test_a_file_that_is_absent_is_never_one_of_other_folders(tmp_path, files, name):
    assert find(tmp_path, files, name) == (name, "")


def test_files_that_fit_alike_are_named(tmp_path):
    _, trouble = find(tmp_path, ("x/cam1/a.jpg", "y/cam1/a.jpg"), "cam1/a.jpg")
    assert trouble.startswith("2 files have its name")


@pytest.mark.parametrize("name", ["//etc/a.jpg", "/etc/a.jpg", "../../etc/a.jpg"])
def test_a_name_never_leads_out_of_the_folder(tmp_path, name):
    assert find(tmp_path, (), name) == ("etc/a.jpg", "")


def test_what_a_mac_keeps_beside_an_image_is_none(tmp_path):
    assert find(tmp_path, ("a.jpg", "._a.jpg"), "._a.jpg") == ("._a.jpg", "")
    assert find(tmp_path, ("__MACOSX/._b.jpg", ".Trash/b.jpg"), "b.jpg") == ("b.jpg", "")
