"""What shows a change of files, without reading them."""

import os
import time

import pytest

from utils.files.file_state import RECENT_NS, state_of_files


@pytest.fixture
def files(tmp_path):
    """Two files, and a time at which they are old enough."""
    paths = [tmp_path / name for name in ("a.jpg", "a.txt")]
    for path in paths:
        path.write_text(path.name)
    return [str(path) for path in paths], time.time_ns() + RECENT_NS + 10**9


def test_a_state_stays_while_nothing_changes(files):
    paths, later = files
    assert state_of_files(paths, later) == state_of_files(paths, later + 10**15) is not None


@pytest.mark.parametrize("change", ["size", "content", "time", "name", "number", "gone"])
def test_every_change_shows(files, change, tmp_path):
    paths, later = files
    before = state_of_files(paths, later)
    status = os.stat(paths[1])
    if change == "size":
        (tmp_path / "a.txt").write_text("longer than before")
    elif change == "content":  # of one size, and with the old time put back
        (tmp_path / "a.txt").write_text("b.txt")
        os.utime(paths[1], ns=(status.st_atime_ns, status.st_mtime_ns))
    elif change == "time":
        os.utime(paths[1], ns=(0, status.st_mtime_ns - 1))
    elif change == "name":
        os.rename(paths[1], tmp_path / "b.txt")
        paths = [paths[0], str(tmp_path / "b.txt")]
    elif change == "number":  # another file in its place
        (tmp_path / "new").write_text("a.txt")
        os.replace(tmp_path / "new", paths[1])
    else:
        os.remove(paths[1])
    after = state_of_files(paths, later + 10**9)
    assert after not in (None, before)


def test_a_link_that_is_turned_shows(files, tmp_path):
    paths, later = files
    for name in ("one", "two"):
        (tmp_path / name).write_text("same size")
    link = tmp_path / "link"
    link.symlink_to("one")
    before = state_of_files([str(link)], later)
    link.unlink()
    link.symlink_to("two")
    assert state_of_files([str(link)], later) not in (None, before)


def test_what_was_changed_a_moment_ago_has_no_state(files):
    paths, later = files
    changed = os.stat(paths[0]).st_ctime_ns
    assert state_of_files(paths, changed + RECENT_NS // 2) is None
    assert state_of_files(paths, changed - 10**9) is None  # the file server's clock is ahead
    # A copy that kept an old time of modification has just come all the same.
    os.utime(paths[0], ns=(0, 0))
    assert state_of_files(paths, time.time_ns()) is None


def test_a_time_to_come_is_no_change(files):
    paths, later = files
    os.utime(paths[0], ns=(0, later + 10**18))
    assert state_of_files(paths, time.time_ns() + 2 * RECENT_NS) is not None


def test_what_cannot_be_looked_at_has_no_state(files, tmp_path):
    paths, later = files
    assert state_of_files(["null\0byte"], later) is None
    assert state_of_files(["\ud800"], later) is None
    assert state_of_files(["x" * 5000], later) is None
    (tmp_path / "loop").symlink_to("loop")
    assert state_of_files([str(tmp_path / "loop")], later) is None
    assert state_of_files([str(tmp_path / "absent"), f"{paths[0]}/inside"], later) is not None
