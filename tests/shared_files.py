"""Large test data that is kept outside of the repository."""

import os
from pathlib import Path

import pytest

from duet.utils.project import PROJECT

collecting = False  # set by conftest.py


def shared_folder() -> Path:
    """The folder that SHARED_DIR names, else `shared` beside the repository; it may be absent."""
    return Path(os.environ.get("SHARED_DIR") or PROJECT.parent / "shared")


def shared_path(relative: str) -> Path:
    """The path of a shared file or folder.

    Without it the test is skipped, or fails where REQUIRE_SHARED=1. A clone without these files
    collects every test: while it does, none may ask for them.
    """
    assert not collecting, f"{relative} is asked for while tests are collected"
    path = shared_folder() / relative
    if not path.exists():
        message = f"{path} is absent; SHARED_DIR names the folder that holds {relative}"
        if os.environ.get("REQUIRE_SHARED") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return path
