"""States that earlier code wrote resume.

    YOLO_BACKEND=torch python -m tests.train.test_old_states tests/train/states/DATE

writes one as today's code does, for later code. Files that it wrote stay as they are.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import train
from duet.utils.processes.suspend import StopRequests, Suspended
from duet.utils.weights.checkpoint import load_checkpoint
from tests.small import write_small_dataset, write_tiny_model
from tests.train.short_runs import rows

# Relative names: a state records its run's folder.
FLAGS = (
    "--data", "shapes/shapes.yaml", "--cfg", "tiny.yaml", "--hyp", "hyp.scratch-low.yaml",
    "--img", "64", "--batch", "2", "--workers", "0", "--device", "cpu", "--epochs", "2",
    "--project", "runs",
)  # fmt: skip
# In the second epoch, with gradients that wait for their update: a run looks once per batch of
# training and of validation for a request to stop.
LOOKS = 10


def write_inputs(folder: Path, dataset: Path | None = None) -> None:
    """Write the dataset, drawn or a copy, and the model that `FLAGS` name."""
    if dataset is None:
        write_small_dataset(folder)
    else:
        shutil.copytree(dataset, folder / "shapes")
    write_tiny_model(folder)


def write_state(folder: Path) -> Path:
    """Run until the stop, and return the state's path."""
    looks = 0

    def cause(requests: StopRequests, agreed: bool | None = None) -> str | None:
        nonlocal looks
        looks += 1
        return "the test asks" if looks == LOOKS else None

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["train.py", *FLAGS])
        patch.setattr(StopRequests, "cause", cause)
        with pytest.raises(Suspended):
            train.main()
    return max((folder / "runs" / "exp" / "weights").glob("state-*"))


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        shutil.copytree(Path(folder, "shapes"), target / "shapes")  # a later OpenCV draws others
        shutil.copyfile(write_state(Path(folder)), target / "state.safetensors")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()


STATES = sorted((Path(__file__).parent / "states").glob("*/*.safetensors"))
# Between machines and frameworks float32 sums round differently; two epochs at small rates.
TOLERANCE = 1e-4


def run_training(folder, *flags):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["train.py", *FLAGS, *flags])
        train.main()


@pytest.mark.parametrize("state", STATES, ids=lambda path: path.parent.name)
def test_stored_state_resumes_to_the_uninterrupted_end(tmp_path, state):
    write_inputs(tmp_path, state.parent / "shapes")
    run_training(tmp_path, "--name", "whole")
    run = tmp_path / "runs" / "old"
    (run / "weights").mkdir(parents=True)
    shutil.copyfile(state, run / "weights" / "state-00000001.safetensors")
    run_training(tmp_path, "--resume", "runs/old")
    found, expected = (
        load_checkpoint(folder / "weights" / "last.safetensors")
        for folder in (run, tmp_path / "runs" / "whole")
    )
    assert found.header.batch_number == expected.header.batch_number
    assert found.header.ema_updates == expected.header.ema_updates
    assert found.header.progress["work"] == expected.header.progress["work"]
    for section in ("model", "ema", "optimizer"):
        arrays = getattr(expected, section)
        assert getattr(found, section).keys() == arrays.keys()
        for name, array in getattr(found, section).items():
            np.testing.assert_allclose(array, arrays[name], 0, TOLERANCE, err_msg=name)
    for row, of_whole in zip(rows(run), rows(tmp_path / "runs" / "whole"), strict=True):
        assert row.keys() == of_whole.keys()
