"""The site, built once for all tests that open it, in both suites where they run side by side."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from duet.utils.project import PROJECT
from duet.utils.system.files import lock
from tests.one_suite import CLAIMS
from tests.site.build import build


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = Path(os.environ.get(CLAIMS, "no folder"))
    folder = folder if folder.is_dir() else tmp_path_factory.mktemp("built")
    with open(folder / "site.lock", "w") as file:
        lock(file.fileno(), wait=True)  # until the other suite has built it
        if not (folder / "site").exists():
            done = build(PROJECT, folder / "building")
            assert done.returncode == 0, done.stdout + done.stderr
            (folder / "building").rename(folder / "site")
    return folder / "site"
