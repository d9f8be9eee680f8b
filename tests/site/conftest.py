"""The site, built once for all tests that open it, in both suites where they run side by side."""

import os
import subprocess
from pathlib import Path

import pytest

from duet.utils.project import PROJECT
from duet.utils.system.files import lock
from tests.one_suite import CLAIMS

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


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = Path(os.environ.get(CLAIMS) or "no folder")
    folder = folder if folder.is_dir() else tmp_path_factory.mktemp("built")
    with open(folder / "site.lock", "w") as file:
        lock(file.fileno(), wait=True)  # until the other suite has built it
        if not (folder / "site").exists():
            done = build(PROJECT, folder / "building")
            assert done.returncode == 0, done.stdout + done.stderr
            (folder / "building").rename(folder / "site")
    return folder / "site"
