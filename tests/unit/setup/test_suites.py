"""Running both backends' tests, with stand-ins for pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from utils.files.project import PROJECT
from utils.setup.suites import SIDE_BY_SIDE, run_suites


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".venv").mkdir()
    return tmp_path


def fake_python(root: Path, backend: str, body: str) -> Path:
    path = root / f"python-{backend}"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_outputs_follow_one_another_though_the_suites_run_at_once(root, capfdbinary):
    # Each waits for a file that the other makes: run one after the other, torch would not end.
    pythons = {
        backend: fake_python(
            root,
            backend,
            f"touch {backend}.began; until [ -e {other}.began ]; do sleep 0.05; done; "
            f"echo {count} passed",
        )
        for backend, other, count in [("torch", "oneflow", 3), ("oneflow", "torch", 4)]
    }
    assert run_suites(pythons, root, {"PATH": "/usr/bin:/bin"}) == []
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines == ["== torch ==", "3 passed", "== oneflow ==", "4 passed"]


def test_second_suite_is_shown_and_judged_when_the_first_fails(root, capfdbinary):
    pythons = {
        "torch": fake_python(root, "torch", "echo 1 failed; exit 1"),
        "oneflow": fake_python(root, "oneflow", "echo 4 passed"),
    }
    assert run_suites(pythons, root, {"PATH": "/usr/bin:/bin"}) == ["torch"]
    assert b"4 passed" in capfdbinary.readouterr().out


@pytest.mark.parametrize("exit_code", [1, 2, 5])  # pytest: failures, interrupted, no tests found
def test_every_exit_code_of_pytest_but_0_is_a_failure(root, exit_code):
    pythons = {"oneflow": fake_python(root, "oneflow", f"exit {exit_code}")}
    assert run_suites(pythons, root, {}) == ["oneflow"]


def test_each_suite_is_told_its_backend_and_the_arguments_of_the_user(root, capfdbinary):
    body = 'echo "$YOLO_BACKEND: $OMP_NUM_THREADS"; for word in "$@"; do echo "[$word]"; done'
    pythons = {"torch": fake_python(root, "torch", body)}
    environ = {"PYTEST_ARGS": "-x -k 'loss and not slow'", "OMP_NUM_THREADS": "7"}
    run_suites(pythons, root, environ)
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[1] == "torch: 7"
    assert lines[-3:] == ["[-x]", "[-k]", "[loss and not slow]"]


def test_modules_are_compiled_once_for_all_processes_of_the_tests(root, capfdbinary):
    python = fake_python(root, "torch", 'echo "[$PYTHONDONTWRITEBYTECODE]"')
    run_suites({"torch": python}, root, {"PYTHONDONTWRITEBYTECODE": "1"})
    assert capfdbinary.readouterr().out == b"== torch ==\n[]\n"


@pytest.mark.parametrize(("backends", "told"), [(["torch"], "[]"), (["torch", "oneflow"], "[1]")])
def test_suites_are_told_that_they_run_side_by_side(root, capfdbinary, backends, told):
    body = f'echo "[${SIDE_BY_SIDE}]"'
    run_suites({name: fake_python(root, name, body) for name in backends}, root, {})
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines == [line for name in backends for line in (f"== {name} ==", told)]


def test_a_question_for_help_starts_no_suite():
    command = [sys.executable, "-m", "utils.setup.suites", "--help"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "" and done.stderr.startswith("Run the tests in the environment")
