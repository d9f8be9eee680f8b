"""A temporary folder that goes with its process."""

import os
import subprocess
import sys
import tempfile

import pytest

from utils.files.project import PROJECT
from utils.serve.own_folder import PREFIX, OwnFolder

KEEP_ONE = """
import sys
from utils.serve.own_folder import OwnFolder
folder = OwnFolder()
(folder.path / "file").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other(place):
    """Another process that has such a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", KEEP_ONE], cwd=PROJECT, env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def test_a_folder_is_for_this_user_alone_until_it_is_removed(place):
    folder = OwnFolder()
    assert folder.path.parent == place and folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "weights.onnx").write_text("x")
    folder.remove()
    assert list(place.iterdir()) == []


def test_the_folder_of_a_killed_process_goes_with_the_next(place, other):
    theirs = other.stdout.readline().strip()
    kept = OwnFolder()
    assert os.path.exists(os.path.join(theirs, "file"))
    other.kill()
    other.wait()
    OwnFolder().remove()
    assert not os.path.exists(theirs) and kept.path.exists()
    kept.remove()


def test_nothing_else_is_removed(place):
    outside = place / "other"
    outside.mkdir()
    (outside / "file").write_text("x")
    (place / f"{PREFIX}link").symlink_to(outside, target_is_directory=True)
    (place / f"{PREFIX}file").write_text("x")
    OwnFolder().remove()
    names = {path.name for path in place.iterdir()}
    assert names == {"other", f"{PREFIX}link", f"{PREFIX}file"} and (outside / "file").exists()
