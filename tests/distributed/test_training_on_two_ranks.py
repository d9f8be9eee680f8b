"""Two ranks learn from half of each batch each what one process learns from the whole."""

from pathlib import Path

import numpy as np
import pytest

from duet.backend import use
from tests.distributed.conftest import run_ranks
from tests.distributed.training_worker import CASES, learn, write_inputs

# The order of float64 sums differs, by 1e-16 relative; six steps and Adam's quotients enlarge it.
TOLERANCE = 1e-9
# OneFlow's own BatchNorm, which the process alone uses, forms 1 - momentum in float32. Validation
# is in float32.
LOOSE_TOLERANCE = 1e-6
# In both a rank lacks an image of the last batch, and BatchNorm works over the ranks.
ON_GPUS = ("multi-tensor", "not finite")
GPUS = "0,1"


def read(folder: Path, case: str, rank: int, devices: str = "cpu") -> dict[str, np.ndarray]:
    with np.load(folder / f"{devices} {case} {rank}.npz") as file:
        return dict(file)


def assert_learnt(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        loose = name.endswith(("running_mean", "running_var", "validation"))
        tolerance = LOOSE_TOLERANCE if loose else TOLERANCE
        scale = np.abs(array).max(initial=0.0)
        np.testing.assert_allclose(
            found[name], array, rtol=0, atol=tolerance * max(scale, 1e-3), err_msg=name
        )


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_learn_the_same_as_one_process(case: str, learnt: Path) -> None:
    wanted = learn(learnt, case)
    for rank in range(2):
        assert_learnt(read(learnt, case, rank), wanted)


@pytest.mark.skipif(use() != "torch", reason="the emulated GPUs are PyTorch's")
def test_two_emulated_gpus_learn_the_same_as_one_process(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    worker = ("tests.emulated.program", "tests/distributed/training_worker.py")
    done = run_ranks(2, "-m", *worker, str(tmp_path), GPUS, *ON_GPUS)
    assert done.returncode == 0, done.stderr
    for case in ON_GPUS:
        wanted = learn(tmp_path, case)
        for rank in range(2):
            assert_learnt(read(tmp_path, case, rank, GPUS), wanted)


def test_skipped_update_is_reported_once(learnt: Path) -> None:
    printed = (learnt / "printed.txt").read_text()
    assert printed.count("update skipped:") == 1
    assert printed.count("1 batch excluded from the mean losses") == 1


def updates_of(case: str) -> int:
    """How many updates the six batches of a case are; each batch of a classifier is one."""
    return {"accumulating": 3, "not finite": 4, "classifier": 6}.get(case, 5)


def test_compared_steps_do_learn(learnt: Path) -> None:
    for case in CASES:
        found = read(learnt, case, 0)
        moved = [name for name in found if name.startswith("optimizer/") and found[name].any()]
        assert len(moved) > 10
        assert found["losses"].shape == (2, {"masks": 4, "classifier": 1}.get(case, 3))
        assert (found["losses"] > 0).all()
        assert found["updates"] == updates_of(case)
