"""Builds of the site, by the environment that `make docs` makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from duet.utils.project import PROJECT

REMEDY = "no environment for the site: make docs"
SECONDS = 300


def docs_python() -> Path:
    """The interpreter of .venv/docs; without it the test is skipped.

    It fails instead where REQUIRE_DOCS=1.
    """
    python = PROJECT / ".venv" / "docs" / "bin" / "python"
    if not python.exists():
        if os.environ.get("REQUIRE_DOCS") == "1":
            pytest.fail(REMEDY)
        pytest.skip(REMEDY)
    return python


def build(project: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a project's folder into target, as `make docs` does."""
    return subprocess.run(
        [docs_python(), "-B", "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=project,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
