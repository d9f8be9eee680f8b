"""A command line as public tutorials print it, in two processes on a stand-in for COCO."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from duet.utils.project import PROJECT
from tests.distributed.conftest import launcher
from tests.small import write_small_dataset, write_tiny_model

SMALL = "--img 64 --epochs 1 --workers 1 --noplots --project runs"
LINE = "--data data/coco.yaml --weights ' ' --cfg models/yolov5n.yaml --batch 64 --device cpu"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder elsewhere, with a space, that holds what the line names."""
    folder = tmp_path / "a folder"
    for part in ("data", "models"):
        (folder / part).mkdir(parents=True)
    text = write_small_dataset(folder).read_text(encoding="utf-8")
    text = text.replace("path: .", f"path: {folder / 'shapes'}")
    (folder / "data" / "coco.yaml").write_text(text, encoding="utf-8")
    shutil.move(write_tiny_model(folder), folder / "models" / "yolov5n.yaml")
    return folder


def test_public_command_line_trains_in_two_processes(folder: Path) -> None:
    start = launcher(os.environ["YOLO_BACKEND"], 2)
    done = subprocess.run(
        [*start, str(PROJECT / "train.py"), *shlex.split(LINE), *shlex.split(SMALL)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("    1/1 ") == done.stdout.count("weights in ") == 1
    assert (folder / "runs" / "exp" / "weights" / "last.safetensors").is_file()
    assert "Traceback" not in done.stderr
