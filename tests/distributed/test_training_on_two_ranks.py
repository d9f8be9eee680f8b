"""Two ranks learn from half of each batch each what one process learns from the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.distributed.ranks import run_ranks
from tests.distributed.training_worker import CASES, learn, write_inputs

# The order of float64 sums differs, by 1e-16 relative; six steps and Adam's quotients enlarge it.
TOLERANCE = 1e-9
# OneFlow's own BatchNorm, which the process alone uses, forms 1 - momentum in float32.
STATISTICS_TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    write_inputs(folder)
    done = run_ranks(2, "-m", "tests.distributed.training_worker", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def read(folder: Path, case: str, rank: int) -> dict[str, np.ndarray]:
    with np.load(folder / f"{case} {rank}.npz") as file:
        return dict(file)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_learn_what_one_process_learns(case: str, folder: Path) -> None:
    wanted = learn(folder, case)
    for rank in range(2):
        found = read(folder, case, rank)
        assert set(found) == set(wanted)
        for name, array in wanted.items():
            loose = name.endswith(("running_mean", "running_var"))
            tolerance = STATISTICS_TOLERANCE if loose else TOLERANCE
            scale = np.abs(array).max(initial=0.0)
            np.testing.assert_allclose(
                found[name], array, rtol=0, atol=tolerance * max(scale, 1e-3), err_msg=name
            )


def test_the_steps_do_learn(folder: Path) -> None:
    for case in CASES:
        found = read(folder, case, 0)
        moved = [name for name in found if name.startswith("optimizer/") and found[name].any()]
        assert len(moved) > 20
        assert found["losses"].shape == (2, 3)
        assert (found["losses"] > 0).all()
        assert found["updates"] == {"accumulating": 3, "not finite": 4}.get(case, 5)
