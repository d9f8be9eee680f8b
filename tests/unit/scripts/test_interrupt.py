"""Ctrl-C at any moment of a script's start: one line, code 130, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from duet import backend
from duet.utils.processes.start import EXIT_INTERRUPTED, EXIT_TERMINATED
from duet.utils.project import PROJECT
from tests.structure.source_files import PYTHON_FILES
from tests.structure.test_imports import module_of

LEFT_OUT = {Path("utils/export/opening.py")}  # a child process, ended by its command
SCRIPTS = sorted(
    script
    for path in PYTHON_FILES
    if 'if __name__ == "__main__":' in path.read_text()
    and (script := path.relative_to(PROJECT)).parts[0] not in ("tests", "benchmarks")
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
    if script == Path("duet/__main__.py"):
        return ["-m", "duet", "train"]
    return ["-m", module_of(PROJECT / script).removesuffix(".__main__")]


def run(arguments, folder, package, text=INTERRUPTION):
    """Run Python with a package of this text."""
    (folder / f"{package}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_control_c_while_a_script_imports_ends_it_with_one_line(script, tmp_path):
    # One that the script imports for itself.
    package = "fcntl" if script.parts[:2] == ("utils", "setup") else "argparse"
    done = run(command_of(script), tmp_path, package)
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "interrupted\n")


CHOICE = """
from duet import backend
from duet.utils.processes.command import run_command
run_command(backend.use)
"""


def test_control_c_while_a_framework_is_imported_ends_the_command(tmp_path):
    done = run(["-c", CHOICE], tmp_path, backend.use())
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "interrupted\n")


TERMINATED = """
import os, signal, sys
from duet.utils.processes.start import ending_at_termination, ending_later
with ending_at_termination():
    with ending_later():
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        print("to the end")
    print("further")
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", EXIT_TERMINATED), ("SIGINT", -2)])
def test_a_signal_waits_for_the_end_of_a_block(name, code):
    command = [sys.executable, "-c", TERMINATED, name]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("to the end\n", code)
