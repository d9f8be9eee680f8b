"""How a process with the chosen backend starts, is interrupted, and finds its functions."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys

import pytest

from duet import backend
from duet.backend.contract import training
from duet.utils.project import PROJECT
from tests.conformance import completeness


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a Python process with the backend under test."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env={**os.environ, "YOLO_BACKEND": backend.use()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_start_up_writes_nothing() -> None:
    process = start(
        "-c", "from duet.backend import ops, use; use(); print(ops.dtype_of(ops.zeros((1,))))"
    )
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "float32\n", "")


INTERRUPTED = """
import time
from duet import backend
backend.use()
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
finally:
    print("cleaned up")
"""


def test_control_c_is_a_keyboard_interrupt() -> None:
    process = start("-c", INTERRUPTED)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "interrupted\ncleaned up\n", "")


HANDLED = """
import os, signal
signal.signal(signal.SIGINT, lambda number, frame: print("handled"))
from duet import backend
backend.use()
os.kill(os.getpid(), signal.SIGINT)
"""


def test_an_interrupt_handler_set_before_stays() -> None:
    process = start("-c", HANDLED)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "handled\n", "")


def test_a_function_is_looked_up_once() -> None:
    found = backend.ops.atan
    assert vars(backend.ops)["atan"] is found
    assert found is importlib.import_module(f"duet.backend.{backend.use()}.ops").atan


def test_what_is_missing_or_differs_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = backend.use()
    ops, nn, optim = (
        importlib.import_module(f"duet.backend.{name}.{m}") for m in ("ops", "nn", "optim")
    )
    monkeypatch.delattr(ops, "where")
    monkeypatch.setattr(ops, "sum", lambda x, axis=None, keepdim=False: x)
    monkeypatch.setattr(nn, "MaxPool2d", lambda kernel_size, stride, padding=1: None)
    monkeypatch.delattr(optim.SGD, "step")
    assert completeness.missing(name) == [
        "ops.where is missing",
        "ops.sum takes (x, axis=None, keepdim=False), not (x, dim=None, keepdim=False)",
        "nn.MaxPool2d takes (kernel_size, stride, padding=1), not (kernel_size, stride, padding=0)",
        "optim.SGD.step is missing",
        "multi_tensor.SGD.step is missing",  # which is derived from it
    ]


def test_every_promised_module_is_a_namespace() -> None:
    assert set(training.MODULES) < set(backend.__all__)
    assert completeness.missing(backend.use()) == []
