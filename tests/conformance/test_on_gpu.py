"""Operations keep their promises on the first GPU, or where there is none, on the emulated one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from duet import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="PyTorch's GPU is emulated")


def test_operations_keep_their_promises_on_a_gpu() -> None:
    command = [sys.executable, "-m", "tests.conformance.on_gpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *failed, number = done.stdout.splitlines()
    assert not failed, done.stdout
    assert int(number) > 100
