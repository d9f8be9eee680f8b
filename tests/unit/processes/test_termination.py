"""SIGTERM ends a block in order, and waits for the end of one that must not be cut."""

from __future__ import annotations

import subprocess
import sys

import pytest

from utils.files.project import PROJECT
from utils.processes.termination import EXIT_TERMINATED

PROGRAM = """
import os, signal, sys
from utils.processes.termination import ending_at_termination, ending_later
with ending_at_termination():
    with ending_later():
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        print("to the end")
    print("further")
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", EXIT_TERMINATED), ("SIGINT", -2)])
def test_a_signal_waits_for_the_end_of_the_block(name: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("to the end\n", code)
