"""The first lines of a command: standard streams that are closed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from duet.utils.project import PROJECT

PROGRAM = """
import os, subprocess, sys
from duet.utils.processes.start import start_command
start_command()
with open("written", "w") as file:
    assert file.fileno() > 2
    os.write(1, b"by a library"), os.write(2, b"by a crash")
    print(sys.stdin.read(), sys.stdout.isatty(), file=sys.stderr)
    subprocess.run([sys.executable, "-c", "import sys; print('by a process', file=sys.stderr)"])
"""


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)])
def test_no_file_takes_the_place_of_a_closed_stream(tmp_path, closed):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, preexec_fn=lambda: [os.close(n) for n in closed],
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "" if 1 in closed else "by a library")
    told = "by a crash False\nby a process\n"
    assert done.stderr == ("" if 2 in closed else told)
    assert (tmp_path / "written").read_text() == ""
