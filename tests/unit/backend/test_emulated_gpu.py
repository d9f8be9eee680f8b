"""The emulated GPU shows what programs do wrong with a GPU."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="it is PyTorch's")


def test_each_fault_shows() -> None:
    from tests.emulated import faults

    checks = [name for name, _ in inspect.getmembers(faults) if name.startswith("check_")]
    command = [sys.executable, "-m", "tests.emulated.faults"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == checks
