"""Large test data that is kept beside the repository, not in it."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_path(relative: str) -> Path:
    """The path of a shared file or folder.

    It is looked for in the folder that SHARED_DIR names, else in `shared` beside the repository.
    Without it the test is skipped, or fails where REQUIRE_SHARED=1.
    """
    folder = Path(os.environ.get("SHARED_DIR") or REPOSITORY.parent / "shared")
    path = folder / relative
    if not path.exists():
        message = f"{path} is absent; SHARED_DIR names the folder that holds {relative}"
        if os.environ.get("REQUIRE_SHARED") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return path
