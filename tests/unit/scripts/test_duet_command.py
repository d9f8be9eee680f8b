"""`python -m duet`: its list of commands, and what is no command."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from duet.__main__ import COMMANDS
from duet.utils.project import PROJECT


def run(*words, **options):
    command = [sys.executable, "-m", "duet", *words]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, **options)


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_the_list_of_commands_fits_on_one_screen(words):
    done = run(*words)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines if line.startswith("  ")} == COMMANDS.keys()


def test_every_command_is_a_module():
    assert all(find_spec(module) for module, _ in COMMANDS.values())


def test_an_unknown_command_is_answered_with_the_nearest():
    done = run("trian")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: unknown command trian; did you mean train?\n  `duet --help` lists all commands\n"
    )


def test_a_list_that_nobody_reads_ends_without_a_traceback():
    line = f"{sys.executable} -m duet | true"
    done = subprocess.run(["bash", "-c", line], cwd=PROJECT, capture_output=True, text=True)
    assert done.stderr == ""
