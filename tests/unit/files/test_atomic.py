"""utils/files/atomic.py: a file is the old one or a whole new one, and errors name it."""

import _pyio
import contextlib
import os
import resource
import stat

import pytest

from duet.utils.files import atomic
from duet.utils.files.atomic import atomic_file, atomic_text_file, link_or_copy, remove_unfinished


@contextlib.contextmanager
def full_disk(limit=1000):
    """Let this process write files of so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [2000, 2_000_000])  # fails at flush or at write
def test_failed_write_names_the_file_and_keeps_the_old_one(tmp_path, size):
    path = tmp_path / "results.csv"
    path.write_text("old")
    with full_disk(), pytest.raises(OSError) as error, atomic_text_file(path) as file:
        file.write("x" * size)
    assert error.value.filename == str(path)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["results.csv"])


def test_line_ends_are_written_unchanged_on_windows(tmp_path, monkeypatch):
    """Else each row of a CSV would end in two, and every second one would be read as empty."""
    monkeypatch.setattr(os, "linesep", "\r\n")
    monkeypatch.setattr(atomic, "open", _pyio.open, raising=False)
    with atomic_text_file(tmp_path / "results.csv") as file:
        file.write("epoch\r\n0\r\n")
    assert (tmp_path / "results.csv").read_bytes() == b"epoch\r\n0\r\n"


def test_failed_replacement_names_the_file_at_fault(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as error, atomic_file(tmp_path / "folder") as file:
        file.write(b"x")
    assert error.value.filename == str(tmp_path / "folder")
    with pytest.raises(OSError) as error, atomic_file(tmp_path / "new"):
        (tmp_path / "missing").read_bytes()
    assert error.value.filename == str(tmp_path / "missing")
    assert os.listdir(tmp_path) == ["folder"]


def test_temporary_names_are_random_and_never_reused(tmp_path, monkeypatch):
    def names(path):
        with atomic_file(path):
            return [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]

    path = tmp_path / "file"
    assert names(path) != names(path)
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda count: "guessed")
    planted = tmp_path / ".file.guessed.tmp"
    for plant in (planted.symlink_to, planted.hardlink_to):
        plant(victim)
        with pytest.raises(FileExistsError), atomic_file(path) as file:
            file.write(b"x")
        assert planted.exists() and victim.read_text() == "untouched"
        planted.unlink()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_new_file_follows_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        with atomic_file(tmp_path / "file"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("links", [True, False])
def test_failed_link_or_copy_names_its_target(tmp_path, monkeypatch, links):
    def refuse(*paths):
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "state").write_bytes(bytes(5000))
    left = ["state"]
    if links:
        (tmp_path / "last").mkdir()
        left = ["last", "state"]
    else:
        monkeypatch.setattr(os, "link", refuse)
    with full_disk(), pytest.raises(OSError) as error:
        link_or_copy(tmp_path / "state", tmp_path / "last")
    assert error.value.filename == str(tmp_path / "last")
    assert sorted(os.listdir(tmp_path)) == left


def test_only_files_of_killed_writers_are_removed(tmp_path):
    for name in (".last.safetensors.12.tmp", "last.safetensors", ".hidden", "a.tmp"):
        (tmp_path / name).touch()
    (tmp_path / ".folder.tmp").mkdir()
    (tmp_path / ".link.tmp").symlink_to("nowhere")
    remove_unfinished(tmp_path)
    remove_unfinished(tmp_path / "missing")
    left = [".folder.tmp", ".hidden", "a.tmp", "last.safetensors"]
    assert sorted(os.listdir(tmp_path)) == left
