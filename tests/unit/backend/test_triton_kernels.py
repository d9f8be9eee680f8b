"""The Triton kernels without a GPU: interpreted they compute what is promised, and they compile."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="only PyTorch launches Triton's")


def run(module: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"tests.unit.backend.{module}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_interpreted_kernels_pass_every_check_of_the_contract() -> None:
    (line,) = run("interpreted_kernels")
    assert int(line.split()[0]) >= 8


def test_kernels_compile_to_machine_code(tmp_path: Path) -> None:
    lines = run("compiled_kernels", TRITON_CACHE_DIR=str(tmp_path))
    assert len(lines) == 3
    assert all(int(size) > 1000 for line in lines for size in line.split()[2:])


@pytest.mark.parametrize(("compiles", "form"), [(False, "kernels"), (True, "closed form")])
def test_a_compiler_gets_the_form_that_it_can_trace(
    monkeypatch: pytest.MonkeyPatch, compiles: bool, form: str
) -> None:
    module = importlib.import_module("backend.torch.fused")
    kernels = SimpleNamespace(complete_iou=lambda *_: "kernels")
    monkeypatch.setattr(module, "_kernels", lambda: kernels)
    monkeypatch.setattr(module, "_CompleteIou", SimpleNamespace(apply=lambda *_: "closed form"))
    monkeypatch.setattr(module.torch.compiler, "is_compiling", lambda: compiles)
    dtype = module.torch.float32
    boxes = SimpleNamespace(is_cuda=True, shape=(2, 4), dtype=dtype, detach=lambda: boxes)
    assert module.complete_iou(boxes, boxes) == form


def test_without_triton_the_autograd_function_runs_and_the_line_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = importlib.import_module("backend.torch.fused")
    monkeypatch.setitem(sys.modules, "triton", None)
    module._kernels.cache_clear()
    assert module._kernels() is None
    assert "Triton is not installed" in module.implementation("cuda:0")
    module._kernels.cache_clear()
