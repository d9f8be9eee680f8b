"""The emulated GPU shows what programs do wrong with a GPU."""

import inspect

import pytest

from duet import backend
from tests.distributed.jobs import run_ranks
from tests.environments import python

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="it is PyTorch's")
FAULTS = ("-m", "tests.emulated.faults")


def checks(prefix: str) -> list[str]:
    from tests.emulated import faults

    return [name for name, _ in inspect.getmembers(faults) if name.startswith(prefix)]


def test_emulated_gpu_shows_each_fault() -> None:
    done = python(*FAULTS, "check_")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == checks("check_") != []


def test_emulated_gpu_shows_each_two_rank_fault() -> None:
    done = run_ranks(2, *FAULTS, "ranks_check_", raw=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == checks("ranks_check_") != []
