"""BatchNorm over the ranks' GPUs: PyTorch's own function against our formulas, in two processes.

There is no GPU here: the kernels that it calls are those of `norm_kernels.py`. What is tested is
what the function does with them, what the ranks exchange, and how the layer calls it.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import backend
from tests.distributed.norm_worker import CASES, DTYPES, LAYOUTS
from tests.distributed.ranks import run_ranks

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow has one way")

# Relative to the largest number. Sums of at most 160 numbers in another order; in half precision
# both ways round results of float32, so that neighbours may be found.
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "bfloat16": 2**-8, "float16": 2**-11}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    done = run_ranks(2, "-m", "tests.distributed.norm_worker", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def read(folder: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(folder / f"{name}.npz") as file:
        return dict(file)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_pytorchs_function_finds_our_numbers(case: str, dtype: str, folder: Path) -> None:
    for layout, rank in itertools.product(LAYOUTS, range(2)):
        ours = read(folder, f"ours {case} {layout} {dtype} {rank}")
        theirs = read(folder, f"theirs {case} {layout} {dtype} {rank}")
        assert theirs.keys() == ours.keys() >= {"output", "by x", "by weight", "running_var"}
        for name, wanted in ours.items():
            scale = np.abs(wanted).max(initial=1.0)
            np.testing.assert_allclose(
                theirs[name], wanted, rtol=0, atol=TOLERANCE[dtype] * scale, err_msg=name
            )


def test_both_layouts_give_the_same_numbers(folder: Path) -> None:
    for way in ("ours", "theirs"):
        rows, last = (read(folder, f"{way} unequal {layout} float64 1") for layout in LAYOUTS)
        for name, wanted in rows.items():
            np.testing.assert_allclose(last[name], wanted, rtol=0, atol=1e-13, err_msg=name)


def test_pytorchs_function_exchanges_half_as_often(folder: Path) -> None:
    for rank in range(2):
        assert (folder / f"ours {rank}.txt").read_text() == "4.0 a layer"
        assert (folder / f"theirs {rank}.txt").read_text() == "2.0 a layer"
