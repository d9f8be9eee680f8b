"""utils/files/growing.py: whole after each piece, whatever happens to the next."""

import contextlib
import os
import resource

import pytest

from utils.files.growing import growing_file


@contextlib.contextmanager
def full_disk(limit):
    """Let this process write files of so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def content(folder) -> bytes:
    (name,) = os.listdir(folder)
    return (folder / name).read_bytes()


def test_the_end_stands_behind_each_piece_at_once(tmp_path):
    with growing_file(tmp_path / "a", end=b"]") as file:
        assert content(tmp_path) == b"]"
        for piece, whole in ((b"[1", b"[1]"), (b",2", b"[1,2]"), (b"", b"[1,2]")):
            file.add(piece)
            assert content(tmp_path) == whole
        assert os.listdir(tmp_path) != ["a"]
    assert (os.listdir(tmp_path), content(tmp_path)) == (["a"], b"[1,2]")


@pytest.mark.parametrize("size", [20, 100_000])
def test_a_piece_that_finds_no_room_leaves_the_file_as_it_was(tmp_path, size):
    with growing_file(tmp_path / "a", end=b"]") as file:
        file.add(b"[1")
        with full_disk(10), pytest.raises(OSError) as caught:
            file.add(b"," + b"2" * size)
        assert caught.value.filename == str(tmp_path / "a")
        assert content(tmp_path) == b"[1]"
        file.add(b",3")
    assert content(tmp_path) == b"[1,3]"


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(ValueError), growing_file(tmp_path / "a") as file:
        file.add(b"new")
        raise ValueError
    assert content(tmp_path) == b"old"
