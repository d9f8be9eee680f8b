"""The site, built once for all tests that open it."""

from __future__ import annotations

from pathlib import Path

import pytest

from duet.utils.project import PROJECT
from tests.site.build import build


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    target = tmp_path_factory.mktemp("site")
    done = build(PROJECT, target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target
