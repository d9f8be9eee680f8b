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


COLLECTIONS = """
import gc
from duet.backend.system import age_objects, collector_paused
try:
    with collector_paused():
        assert not gc.isenabled()
        new = [[] for _ in range(10_000)]
        age_objects()
        raise ValueError
except ValueError:
    assert gc.isenabled()
oldest = set(map(id, gc.get_objects(2)))
assert oldest.issuperset(map(id, new)) and not gc.get_freeze_count()
gc.freeze()
frozen = gc.get_freeze_count()
age_objects()
assert gc.get_freeze_count() == frozen
"""


def test_a_pause_of_the_collector_spares_it_the_new_objects() -> None:
    """And it runs again after an error, and what a caller has frozen stays frozen."""
    subprocess.run([sys.executable, "-c", COLLECTIONS], cwd=PROJECT, check=True, timeout=60)
