"""Measures the constants of `scaling_model.py` on this machine; `scaling.py --measure` calls it."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import backend
from backend import autograd, nn, ops
from benchmarks.scaling_model import Network
from utils.state.checkpoint import Checkpoint, Header, save_checkpoint

MODELS = "nsmlx"
LIMIT_SECONDS = 900
SIDE = 64  # of the image on which convolutions are counted
SAVES = 5
# Images a step: the second of n tells what an image takes, those of s what is predicted from n.
CASES = (("n", 1, 4), ("n", 1, 8), ("n", 2, 4), ("s", 1, 4), ("s", 2, 4))
IMAGE_SIDES = {"torch": 320, "oneflow": 128}  # OneFlow's CPU kernels are slow


def model_yaml(name: str) -> Path:
    return Path(f"models/yolov5{name}.yaml")


def count_network(path: Path) -> Network:
    """Return the sizes of a model of 80 classes; run it once to count its convolutions."""
    from models.blocks import conv as blocks
    from models.detector import Detector, count_parameters
    from models.graph import read_model_yaml

    model = Detector(read_model_yaml(path, 80))
    channels, outputs = [], []
    forward = blocks.Conv.forward

    def counting(self: Any, x: Any) -> Any:
        y = forward(self, x)
        channels.append(y.shape[1])
        outputs.append(int(np.prod(y.shape)))
        return y

    with patch.object(blocks.Conv, "forward", counting), autograd.no_grad():
        model(ops.tensor(np.zeros((1, 3, SIDE, SIDE), np.float32)))
    return Network(
        parameters=count_parameters(model),
        state_bytes=sum(array.nbytes for array in nn.state_arrays(model).values()),
        norm_layers=len(channels),
        norm_channels=sum(channels),
        convolution_outputs=sum(outputs) / SIDE**2,
    )


def train(name: str, ranks: int, images: int, side: int) -> dict[str, Any]:
    """Return the figures of `scaling_rank.py`, run in its own network if that is allowed."""
    own_network = ["unshare", "--net"] if os.geteuid() == 0 and shutil.which("unshare") else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [*own_network, sys.executable, "-m", "benchmarks.scaling_rank"]
        command += ["--backend", backend.use(), "--ranks", ranks, "--cfg", model_yaml(name)]
        command += ["--img", side, "--images", images, "--json", path]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        words = [str(word) for word in command]
        subprocess.run(words, env=environment, check=True, timeout=LIMIT_SECONDS)
        return {"model": name, **json.loads(path.read_text())}


def save_model(name: str, folder: Path) -> dict[str, Any]:
    """Return bytes of a checkpoint, median seconds to write it, and to write as many bytes."""
    from models.detector import Detector
    from models.graph import read_model_yaml

    model = Detector(read_model_yaml(model_yaml(name), 80))
    arrays = nn.state_arrays(model)
    momenta = {
        f"{key}.momentum": np.zeros(parameter.shape, np.float32)
        for key, parameter in nn.named_parameters(model)
    }
    header = Header(model.spec.document, (), 1, 1, 0, 1, 0.0, {}, {}, backend.use())
    checkpoint = Checkpoint(header, arrays, arrays, momenta)
    path = folder / "state.safetensors"
    seconds = [seconds_of(lambda: save_checkpoint(path, checkpoint)) for _ in range(SAVES)]
    data = path.read_bytes()
    written = [seconds_of(lambda: write_through(path, data)) for _ in range(SAVES)]
    return {
        "model": name,
        "bytes": len(data),
        "seconds": statistics.median(seconds),
        "disk_seconds": statistics.median(written),
    }


def write_through(path: Path, data: bytes) -> None:
    """Write bytes and wait until they are on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def seconds_of(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(folder: Path) -> dict[str, Any]:
    """Measure everything with the backend in use; this takes some minutes."""
    side = IMAGE_SIDES[backend.use()]
    trainings = [train(name, ranks, images, side) for name, ranks, images in CASES]
    return {
        "trainings": trainings,
        "checkpoints": [save_model(name, folder) for name in "nsm"],
    }
