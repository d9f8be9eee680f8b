"""Arrays kept in the user's cache folder: whole or absent, bounded, and never in the way."""

import logging
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from utils.files import array_cache
from utils.files.array_cache import cache_folder, read_arrays, version_of, write_arrays

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


def test_arrays_come_back(folder):
    assert kept() is None
    keep()
    found = kept()
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    assert [path.name for path in folder.iterdir()] == ["name.safetensors"]
    assert folder.stat().st_mode & 0o077 == 0  # nobody else's business


def test_another_version_or_name_finds_nothing(folder):
    keep()
    assert kept(version=b"two") is None and kept("other") is None
    keep(version=b"two")
    assert kept() is None and kept(version=b"two") is not None


def test_every_damage_is_found(folder):
    keep()
    path = folder / "name.safetensors"
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        found = kept()  # blanks and the order of names in the header may differ: the arrays do not
        assert found is None or all((found[name] == ARRAYS[name]).all() for name in ARRAYS)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert kept() is None, length
    path.write_bytes(whole + b"more")
    assert kept() is None
    keep()
    assert kept() is not None


@pytest.mark.parametrize("change", ["value", "shape", "dtype", "name", "more", "less"])
def test_arrays_that_another_wrote_are_not_ours(folder, change):
    keep()
    path = folder / "name.safetensors"
    arrays = dict(load(path.read_bytes()))
    changed = {
        "value": {"a": arrays["a"] + 1},
        "shape": {"a": arrays["a"].reshape(2, 3)},
        "dtype": {"a": arrays["a"].view(np.uint64)},
        "more": {"c": arrays["a"]},
        "name": {"c": arrays.pop("a") if change == "name" else 0},
        "less": {"b": arrays.pop("b") if change == "less" else 0},
    }[change]
    path.write_bytes(save({**arrays, **changed} if change != "less" else arrays))
    assert kept() is None


def test_what_is_no_file_is_nothing(folder, tmp_path):
    (folder / "name.safetensors").mkdir(parents=True)
    os.mkfifo(folder / "fifo.safetensors")
    (folder / "loop.safetensors").symlink_to("loop.safetensors")
    assert [kept(name) for name in ("name", "fifo", "loop", "x" * 300)] == [None] * 4


def test_a_folder_that_cannot_be_written_is_a_line_in_the_log(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DUET_CACHE", str(tmp_path / "file"))
    with caplog.at_level(logging.INFO):
        keep()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "kind are not kept for the next run" in line and str(tmp_path / "file") in line
    assert kept() is None


def test_a_full_disk_leaves_nothing_behind(folder, monkeypatch, caplog):
    def full(arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(array_cache, "save", full)
    with caplog.at_level(logging.INFO):
        keep()
    assert "No space left on device" in caplog.text
    assert list(folder.iterdir()) == []


def test_what_is_too_large_is_not_kept(folder, monkeypatch, caplog):
    monkeypatch.setattr(array_cache, "MAX_FILE_BYTES", 50)
    with caplog.at_level(logging.INFO):
        write_arrays("kind", "name", VERSION, {"a": np.zeros(51, np.uint8)})
    assert not folder.exists() and "larger than a GiB" in caplog.text


def test_the_oldest_go_first_and_use_counts(folder, monkeypatch):
    for number in range(4):
        keep(str(number))
        os.utime(folder / f"{number}.safetensors", (1000 + number, 1000 + number))
    assert kept("0") is not None  # now the newest
    size = (folder / "0.safetensors").stat().st_size
    monkeypatch.setattr(array_cache, "MAX_FOLDER_BYTES", 3 * size)
    keep("new")
    assert sorted(path.stem for path in folder.iterdir()) == ["0", "3", "new"]
    monkeypatch.setattr(array_cache, "MAX_FILES", 2)
    os.utime(folder / "0.safetensors", (1, 1))
    keep("last")
    assert sorted(path.stem for path in folder.iterdir()) == ["last", "new"]


def test_what_killed_writers_left_goes_after_an_hour(folder):
    folder.mkdir(parents=True)
    old, young = (folder / f".name.safetensors.{name}.tmp" for name in ("old", "young"))
    for path in (old, young, folder / "of others"):
        path.touch()
    os.utime(old, (time.time() - 3700,) * 2)
    os.utime(folder / "of others", (1, 1))
    keep()
    assert not old.exists() and young.exists() and (folder / "of others").exists()


def test_many_writers_and_readers_at_once_see_whole_files(folder):
    versions = [{"a": np.full(5000, number)} for number in range(4)]
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            if (found := kept()) is not None:
                seen.append(set(found["a"].tolist()))

    def write(arrays):
        for _ in range(10):
            keep(arrays=arrays)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(arrays,)) for arrays in versions]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert kept() is not None
    assert all(len(values) == 1 for values in seen)


def test_the_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv("DUET_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/someone/.cache/duet")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_folder() == Path("/cache/duet")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")  # the specification has it ignored
    assert cache_folder() == Path("/home/someone/.cache/duet")
    monkeypatch.setenv("DUET_CACHE", "here")
    assert cache_folder() == Path.cwd() / "here"
    monkeypatch.setenv("DUET_CACHE", "")
    assert cache_folder() is None
    keep()
    assert kept() is None


def test_the_version_is_of_the_code():
    one, other = version_of("utils/polygons.py"), version_of("utils/boxes.py")
    assert len(one) == 32 and one != other
    assert version_of("utils/polygons.py") == one
