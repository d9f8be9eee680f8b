"""Arrays kept in the user's cache folder: whole or absent, bounded, and never in the way."""

import logging
import os
import time
from pathlib import Path

import numpy as np
import pytest

from duet.utils.files import array_cache
from duet.utils.files.array_cache import (
    RECENT_NS,
    cache_folder,
    read_arrays,
    state_of_files,
    version_of,
    write_arrays,
)

VERSION = b"one"
ARRAYS = {"a": np.arange(6, dtype=np.int64).reshape(3, 2), "b": np.zeros(0, np.float32)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DUET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kind"


def keep(name="name", arrays=ARRAYS, version=VERSION):
    write_arrays("kind", name, version, arrays)


def kept(name="name", version=VERSION):
    return read_arrays("kind", name, version)


def test_cached_arrays_need_the_same_name_and_version(folder):
    assert kept() is None
    keep()
    found = kept()
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    assert [path.name for path in folder.iterdir()] == ["name.safetensors"]
    assert folder.stat().st_mode & 0o077 == 0  # nobody else's business
    assert kept(version=b"two") is None and kept("other") is None
    keep(version=b"two")
    assert kept() is None and kept(version=b"two") is not None


def test_incomplete_cache_file_counts_as_absent(folder):
    keep()
    path = folder / "name.safetensors"
    whole = path.read_bytes()
    for content in (*(whole[:length] for length in range(len(whole))), whole + b"more", b"x" * 99):
        path.write_bytes(content)
        assert kept() is None


@pytest.mark.parametrize("fault", ["no folder", "full disk"])
def test_failed_caching_is_one_log_line(folder, tmp_path, monkeypatch, caplog, fault):
    def full(arrays, metadata):
        raise OSError(28, "No space left on device")

    if fault == "no folder":
        (tmp_path / "cache").touch()
    else:
        monkeypatch.setattr(array_cache, "save", full)
    with caplog.at_level(logging.INFO):
        keep()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "could not cache kind for the next run" in line
    assert kept() is None and not list(tmp_path.rglob("*.tmp"))


def test_least_recently_used_files_are_removed_first(folder, monkeypatch):
    for number in range(4):
        keep(str(number))
        os.utime(folder / f"{number}.safetensors", (1000 + number, 1000 + number))
    size = (folder / "0.safetensors").stat().st_size
    left_by_a_killed_writer = folder / ".0.safetensors.ab.tmp"
    left_by_a_killed_writer.write_bytes(bytes(size))
    os.utime(left_by_a_killed_writer, (1, 1))
    (folder / "of others").write_bytes(bytes(size))
    assert kept("0") is not None  # now the newest
    monkeypatch.setattr(array_cache, "MAX_FOLDER_BYTES", 3 * size)
    keep("new")
    assert sorted(path.stem for path in folder.iterdir()) == ["0", "3", "new", "of others"]


def test_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.delenv("DUET_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    for shared, expected in (
        ("", "/home/someone/.cache/duet"),
        ("/cache", "/cache/duet"),
        ("not/absolute", "/home/someone/.cache/duet"),  # the specification has it ignored
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", shared)
        assert cache_folder() == Path(expected)
    monkeypatch.setenv("DUET_CACHE", "here")
    assert cache_folder() == Path.cwd() / "here"
    monkeypatch.setenv("DUET_CACHE", "")
    keep()
    assert cache_folder() is None and kept() is None
    assert version_of("utils/geometry/tiling.py") != version_of("utils/geometry/boxes.py")


def test_file_that_may_change_unseen_has_no_state(tmp_path):
    first, later = str(tmp_path / "a.jpg"), time.time_ns() + RECENT_NS + 10**9
    Path(first).touch()
    changed = os.stat(first).st_ctime_ns
    assert state_of_files([first], changed + RECENT_NS // 2) is None
    assert state_of_files([first], changed - 10**9) is None  # the file server's clock is ahead
    os.utime(first, ns=(0, 0))  # a copy that kept an old time has just come all the same
    assert state_of_files([first], time.time_ns()) is None
    os.utime(first, ns=(0, later + 10**18))  # a time to come is no change
    assert state_of_files([first], time.time_ns() + 2 * RECENT_NS) is not None
    (tmp_path / "loop").symlink_to("loop")
    for name in ("null\0byte", "\ud800", "x" * 5000, str(tmp_path / "loop")):
        assert state_of_files([name], later) is None
    assert state_of_files([str(tmp_path / "absent"), f"{first}/inside"], later) is not None
