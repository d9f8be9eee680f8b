"""The search for a Python, on stand-ins: small scripts that answer as interpreters would."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from utils.setup.interpreters import NoPythonError, find_python

WORKING = 'echo "{version}"; echo "$0"'
WITHOUT_VENV = 'echo "{version}"; echo "$0"; echo "No module named ensurepip" >&2; exit 1'
FAILING_SHIM = 'echo "pyenv: python3.10: command not found" >&2; exit 127'


def write_script(path: Path, body: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def write_python(path: Path, version: str, body: str = WORKING) -> str:
    return write_script(path, body.format(version=version))


@pytest.fixture(autouse=True)
def running_python_is_too_new(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", write_python(tmp_path / "running", "3.14.0"))


def test_running_python_is_preferred(tmp_path, monkeypatch):
    running = write_python(tmp_path / "other", "3.12.1")
    monkeypatch.setattr(sys, "executable", running)
    write_python(tmp_path / "bin" / "python3.13", "3.13.0")
    found = find_python(["3.13", "3.12"], {"PATH": str(tmp_path / "bin")})
    assert (found.path, found.version) == (running, "3.12.1")


def test_failing_shim_does_not_hide_a_later_python_of_the_same_name(tmp_path):
    write_script(tmp_path / "shims" / "python3.10", FAILING_SHIM)
    working = write_python(tmp_path / "bin" / "python3.10", "3.10.13")
    path = f"{tmp_path / 'shims'}:{tmp_path / 'bin'}"
    assert find_python(["3.10"], {"PATH": path}).path == working


@pytest.mark.parametrize(
    ("version", "body"), [("3.11.2", WORKING), ("3.10.4", WITHOUT_VENV), ("3.10.4", FAILING_SHIM)]
)
def test_python_of_the_right_name_that_does_not_fit_is_passed_over(tmp_path, version, body):
    write_python(tmp_path / "bin" / "python3.10", version, body)
    fitting = write_python(tmp_path / ".pyenv/versions/3.10.13/bin/python3", "3.10.13")
    environ = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    assert find_python(["3.10"], environ).path == fitting


def test_pyenv_root_is_read_before_home(tmp_path):
    write_python(tmp_path / ".pyenv/versions/3.10.13/bin/python3", "3.10.13")
    chosen = write_python(tmp_path / "pyenv/versions/3.10.9/bin/python3", "3.10.9")
    environ = {"HOME": str(tmp_path), "PYENV_ROOT": str(tmp_path / "pyenv")}
    assert find_python(["3.10"], environ).path == chosen


def test_python_that_uv_installed_is_found(tmp_path):
    folder = tmp_path / ".local/share/uv/python/cpython-3.10.20-linux-x86_64-gnu"
    managed = write_python(folder / "bin" / "python3", "3.10.20")
    assert find_python(["3.10"], {"PATH": "", "HOME": str(tmp_path)}).path == managed


def test_message_names_each_python_with_its_reason_and_the_remedy(tmp_path):
    shim = write_script(tmp_path / "a" / "python3.10", FAILING_SHIM)
    bare = write_python(tmp_path / "b" / "python3.10", "3.10.4", WITHOUT_VENV)
    other = write_python(tmp_path / "b" / "python3", "3.9.2")
    environ = {"PATH": f"{tmp_path / 'a'}:{tmp_path / 'b'}", "HOME": str(tmp_path)}
    with pytest.raises(NoPythonError) as error:
        find_python(["3.10"], environ)
    message = str(error.value)
    assert f"{shim} does not run: pyenv: python3.10: command not found" in message
    assert f"{bare} lacks venv or ensurepip" in message
    assert "apt install python3.10-venv" in message
    assert f"{other} is Python 3.9.2" in message
    assert "`pyenv install 3.10`" in message and "`uv python install 3.10`" in message
