"""Importing `backend` imports no framework, in the environment of either."""

from __future__ import annotations

import subprocess
import sys

import pytest

from duet import backend
from duet.backend.select import FRAMEWORKS
from duet.utils.project import PROJECT

PACKAGES = {framework.package for framework in FRAMEWORKS.values()}


@pytest.mark.parametrize(
    "statement",
    [
        "from duet import backend",
        "from duet.backend import ops, nn, optim, fused, multi_tensor, autograd, amp, device",
        "from duet.backend import contract, select, processes, checks",
        "from duet.backend import ops; hasattr(ops, '__wrapped__'); repr(ops)",
    ],
)
def test_importing_backend_imports_no_framework(statement: str) -> None:
    code = f"{statement}\nimport sys\nassert not {PACKAGES} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True, timeout=60)


@pytest.mark.skipif(backend.use() != "torch", reason="PyTorch's compiler")
def test_a_training_without_compile_imports_no_compiler() -> None:
    code = "from duet import backend; backend.use(); import duet.models.training.loop, sys\n"
    code += "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True, timeout=60)
