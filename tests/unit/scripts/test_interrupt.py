"""Ctrl-C at any moment of a script's start: one line, code 130, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import backend
from tests.structure.source_files import PYTHON_FILES
from utils.files.project import PROJECT
from utils.processes.interrupt import EXIT_INTERRUPTED

LEFT_OUT = {
    Path("backend/contract/__main__.py"),  # its package imports much before it
    Path("utils/export/trial.py"),  # a child process, ended by the command that starts it
}
SCRIPTS = sorted(
    script
    for path in PYTHON_FILES
    if 'if __name__ == "__main__":' in path.read_text()
    and (script := path.relative_to(PROJECT)).parts[0] != "tests"
    and script not in LEFT_OUT
)
# Takes the place of a package that a script imports, and interrupts the import.
INTERRUPTION = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
"""


def command_of(script):
    """How a user starts it."""
    if len(script.parts) == 1:
        return [str(script)]
    name = ".".join(script.with_suffix("").parts).removesuffix(".__main__")
    return ["-m", name]


def run(arguments, folder, package, text=INTERRUPTION):
    """Run Python with a package of this text."""
    (folder / f"{package}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=environment, capture_output=True, text=True
    )


def test_every_script_that_a_user_starts_is_looked_at():
    names = {str(script) for script in SCRIPTS}
    assert {"train.py", "val.py", "compare.py", "utils/weights/__main__.py"} < names
    assert len(names) > 20


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_control_c_while_a_script_imports_ends_it_with_one_line(script, tmp_path):
    # One that the script imports for itself.
    package = "fcntl" if script.parts[:2] == ("utils", "setup") else "argparse"
    done = run(command_of(script), tmp_path, package)
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "interrupted\n")


CHOICE = """
import backend
from utils.processes.command import run_command
run_command(backend.use)
"""


@pytest.mark.parametrize("arguments", [["-c", CHOICE], ["-m", "backend.contract", backend.use()]])
def test_control_c_waits_for_the_import_of_a_framework(arguments, tmp_path):
    text = INTERRUPTION + "print('whole', flush=True)"
    done = run(arguments, tmp_path, backend.use(), text)
    assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, "interrupted\n")
    assert done.stdout == "whole\n"


def test_a_second_control_c_does_not_wait_for_it(tmp_path):
    text = 2 * INTERRUPTION + "print('whole', flush=True)"
    done = run(["-c", CHOICE], tmp_path, backend.use(), text)
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "interrupted\n")
