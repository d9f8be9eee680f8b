"""utils/files/regular.py: what is read is a regular file of a bounded size; nothing else waits."""

import errno
import os
import socket

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from duet.utils.files.regular import open_regular, pinned, read_bytes, read_text

READERS = open_regular, read_bytes, read_text
KINDS = ("fifo", "folder", "socket", "link to a fifo", "/dev/zero", "/dev/tty")


def make_special(kind, path):
    """Put what is no regular file of a kind at a path; a link to it where it has its own place."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "link to a fifo":
        os.mkfifo(path.with_name("fifo"))
        path.symlink_to("fifo")
    else:
        path.symlink_to(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_special_files_are_refused_at_once_and_closed(tmp_path, kind):
    make_special(kind, tmp_path / "a")
    before = len(os.listdir("/proc/self/fd"))
    for read in READERS:
        with pytest.raises(OSError) as caught:
            read(tmp_path / "a", 1000)
        assert caught.value.strerror.endswith(", not a regular file")
        assert caught.value.filename == str(tmp_path / "a")
    assert len(os.listdir("/proc/self/fd")) == before


def test_file_sizes_are_bounded_inclusively(tmp_path):
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(1 << 42)
    for read in READERS:
        with pytest.raises(OSError) as caught:
            read(tmp_path / "holes", 1 << 20)
        assert caught.value.errno == errno.EFBIG
        assert caught.value.strerror == "has 4,398,046,511,104 bytes; accepted: at most 1,048,576"
    (tmp_path / "a").write_bytes(b"x" * 1000)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert read_bytes(tmp_path / "link", 1000) == b"x" * 1000
    with pytest.raises(OSError, match="accepted: at most 999"):
        read_bytes(tmp_path / "a", 999)
    (tmp_path / "a").write_bytes(b"")
    assert read_bytes(tmp_path / "a", 0) == b""


def test_pinned_name_reads_the_file_opened_first(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"a": np.arange(3)}, path)
    with pinned(path, 1000) as name:
        path.unlink()
        os.mkfifo(path)
        with safe_open(name, framework="numpy") as file:
            assert file.get_tensor("a").tolist() == [0, 1, 2]
