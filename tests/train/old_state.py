"""Write states of an interrupted run as today's code writes them, for later code to go on from.

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

# Relative names: a state tells where its run lay.
FLAGS = (
    "--data", "shapes/shapes.yaml", "--cfg", "tiny.yaml", "--hyp", "hyp.scratch-low.yaml",
    "--img", "64", "--batch", "2", "--workers", "0", "--device", "cpu", "--epochs", "2",
    "--project", "runs",
)  # fmt: skip
# Looks for a request to stop, of which there is one after each batch of training and validation.
STOPS = {"pending-gradients": 5, "in-validation": 7, "second-epoch": 9}


def write_inputs(folder: Path) -> None:
    """The dataset and the model that `FLAGS` name."""
    write_small_dataset(folder)
    write_tiny_model(folder)


def write_state(folder: Path, name: str) -> Path:
    """Run until the stop of this name; the file of its state."""
    looks = 0

    def cause(requests: StopRequests) -> str | None:
        nonlocal looks
        looks += 1
        return "the test asks" if looks == STOPS[name] else None

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["train.py", *FLAGS, "--name", name])
        patch.setattr(StopRequests, "cause", cause)
        with pytest.raises(Suspended):
            train.main()
    return max((folder / "runs" / name / "weights").glob("state-*"))


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        for name in STOPS:
            shutil.copyfile(write_state(Path(folder), name), target / f"{name}.safetensors")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
