"""Write a state of an interrupted run as today's code writes it, for later code to resume.

    YOLO_BACKEND=torch python -m tests.train.old_state tests/train/states/DATE

Files that it wrote stay as they are: `test_old_states.py` resumes every one of them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

import train
from duet.utils.processes.suspend import StopRequests, Suspended
from tests.small import write_small_dataset, write_tiny_model

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
