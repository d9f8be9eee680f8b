"""The emulated GPU shows what programs do wrong with a GPU."""

import inspect
from types import ModuleType

import pytest

from duet import backend
from tests.distributed.jobs import run_ranks
from tests.environments import python

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="it is PyTorch's")


def checks_of(module: ModuleType) -> list[str]:
    return [name for name, _ in inspect.getmembers(module) if name.startswith("check_")]


def test_each_fault_shows() -> None:
    from tests.emulated import faults

    done = python("-m", "tests.emulated.faults")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == checks_of(faults)


def test_each_fault_of_two_ranks_shows() -> None:
    from tests.emulated import rank_faults

    done = run_ranks(2, "-m", "tests.emulated.rank_faults", raw=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == checks_of(rank_faults)
