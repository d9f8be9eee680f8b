"""Running both backends' tests, with stand-ins for pytest, and the line that shows progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.terminal import run_on_terminal
from utils.setup.suites import SIDE_BY_SIDE, run_suites, state_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".venv").mkdir()
    return tmp_path


def fake_python(root: Path, backend: str, body: str) -> Path:
    path = root / f"python-{backend}"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("code", "failed"), [(0, []), (1, ["torch"]), (5, ["torch"])])
def test_outputs_follow_one_another_though_the_suites_run_at_once(root, capfd, code, failed):
    # Each waits for a file that the other makes: run one after the other, torch would not end.
    body = "touch {}.began; until [ -e {}.began ]; do sleep 0.05; done; echo {} passed; exit {}"
    pythons = {
        "torch": fake_python(root, "torch", body.format("torch", "oneflow", 3, code)),
        "oneflow": fake_python(root, "oneflow", body.format("oneflow", "torch", 4, 0)),
    }
    assert run_suites(pythons, root, {"PATH": "/usr/bin:/bin"}) == failed
    lines = capfd.readouterr().out.splitlines()
    assert lines == ["== torch ==", "3 passed", "== oneflow ==", "4 passed"]


@pytest.mark.parametrize(("backends", "beside"), [(["torch"], ""), (["torch", "oneflow"], "1")])
def test_a_suite_knows_its_backend_and_the_other_suite_and_gets_the_users_arguments(
    root, capfd, backends, beside
):
    body = f'echo "$YOLO_BACKEND $OMP_NUM_THREADS ${SIDE_BY_SIDE} [$PYTHONDONTWRITEBYTECODE]"'
    body += '; for word in "$@"; do echo "[$word]"; done'
    environ = {"PYTEST_ARGS": "-k 'loss and not slow'", "OMP_NUM_THREADS": "7"}
    environ["PYTHONDONTWRITEBYTECODE"] = "1"
    run_suites({name: fake_python(root, name, body) for name in backends}, root, environ)
    lines = capfd.readouterr().out.splitlines()
    assert lines[1] == f"torch 7 {beside} []"  # modules are compiled once for all processes
    assert lines[-2:] == ["[-k]", "[loss and not slow]"]


def test_how_far_pytest_is_stands_at_the_end_of_its_lines(tmp_path):
    logs = {name: tmp_path / name for name in ("torch", "oneflow")}
    logs["torch"].write_text("..... [ 24%]\n100 [ 99%] of what a test prints\n..s.. [ 48%]\n..")
    logs["oneflow"].write_text("collected 300 items\n\n...")
    assert state_of(logs, 185) == "tests: torch 48 %, oneflow 0 %; 3:05"


def test_a_terminal_has_one_line_that_leaves_no_trace():
    code = """
from utils.screen.state_line import StateLine
with StateLine() as line:
    for state in ("tests: torch 50 %, oneflow 48 %; 8:20", "tests: torch 99 %"):
        line.tell(state)
print("done")
"""
    for columns in (20, 80):
        screen = run_on_terminal(code, columns)
        assert screen.shown() == ["done"]
        assert "tests: torch 99 %" in screen.seen and max(map(len, screen.seen)) < columns
