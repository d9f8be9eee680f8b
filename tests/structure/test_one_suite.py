"""Tests that one suite alone runs: together both run every file."""

import os
import shutil
import subprocess
from pathlib import Path

from duet.backend.select import ENVIRONMENT_VARIABLE
from duet.utils.project import PROJECT
from tests.one_suite import (
    IN_BOTH,
    OF_TORCH,
    ONCE,
    ONCE_ALONE,
    TESTS,
    SharedFiles,
    is_left_out,
    place,
)
from tests.structure.test_imports import FILES, graph

SCRIPTS = {"duet.backend", "train", "val", "detect", "export"}  # they ask the bound backend


def needs_framework(module: str) -> bool:
    """Whether a module imports what asks the bound backend, itself or by way of others."""
    seen, todo = {module}, [module]
    while todo:
        others = graph()[todo.pop()] - seen
        if any(other in SCRIPTS or other.startswith("duet.models.") for other in others):
            return True
        seen |= others
        todo += others
    return False


def test_framework_free_tests_run_once() -> None:
    both = [TESTS / file for file in IN_BOTH]
    found = [
        str(path.relative_to(TESTS))
        for module, path in FILES.items()
        if path.is_relative_to(TESTS)
        and path.name.startswith("test_")
        and place(path) < 0
        and path not in both
        and not needs_framework(module)
    ]
    assert found == []


def test_tests_of_pytorch_packages_run_only_there() -> None:
    for path in (TESTS / file for file in OF_TORCH):
        assert not is_left_out(path, {ENVIRONMENT_VARIABLE: "torch"}) and place(path) >= 0
        assert is_left_out(path, {ENVIRONMENT_VARIABLE: "oneflow"})


def test_framework_free_file_runs_where_it_is_claimed_first(tmp_path: Path) -> None:
    assert [name for name in (*ONCE, *IN_BOTH, *OF_TORCH) if not (TESTS / name).exists()] == []
    shared, bound = TESTS / "unit/files/test_plain_data.py", TESTS / "train/test_resume.py"
    assert place(shared) >= 0 and place(bound) == -1
    first, second = SharedFiles(tmp_path), SharedFiles(tmp_path)
    assert all(is_left_out(TESTS / name, {ONCE_ALONE: "1"}) for name in IN_BOTH)
    assert first.is_taken(shared) and not second.is_taken(shared) and first.is_taken(shared)


def test_suites_of_a_fresh_clone_share_their_files(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "Makefile", tmp_path)  # without environments: they are made by the run
    line, environment = ["make", "--dry-run", "test"], {**os.environ, "MAKEFLAGS": ""}
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "TESTS_CLAIMS=$claims" in done.stdout
