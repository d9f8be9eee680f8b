"""Outputs stored from the public YOLOv5: what they are, and the same from one backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.losses import arrays_of
from utils.cli.config import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from utils.data.loading.loader import Targets
from utils.report.console import StageTimer

# Importing a model chooses a backend, which the command itself has none of.
if TYPE_CHECKING:
    from models.detector import Detector
    from models.heads.base import Loss

CONFIG = "models/yolov5n.yaml"
IMAGE_SIZE = 640  # that the loss of the stored run was scaled for
PRECISIONS = {"fp32": "float32", "fp64": "float64"}
TARGETS = ("random", "edge", "empty")
LEVELS = range(3)

Arrays = dict[str, np.ndarray]


def read(golden: Path, name: str) -> Arrays:
    return dict(np.load(golden / "yolov5n" / f"{name}.npz"))


def read_targets(golden: Path, name: str) -> Targets:
    rows = read(golden, "targets")[name]
    return Targets(rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64), rows[:, 2:])


def expected(golden: Path) -> Arrays:
    """The stored outputs under the names of `measure`."""
    outputs, losses = read(golden, "eval_outputs"), read(golden, "train_loss")
    arrays = {
        f"layer {index:02d}/{figure}": value
        for index, values in enumerate(outputs["fp32_random_layer_mean_std_l2"])
        for figure, value in zip(("mean", "std", "L2"), values, strict=True)
    }
    arrays |= {f"raw maps/{level}": outputs[f"fp32_random_raw{level}"] for level in LEVELS}
    arrays["decoded boxes/all"] = outputs["fp32_random_decoded"]
    for precision in PRECISIONS:
        for name in TARGETS:
            key = f"{precision}_{name}"
            arrays[f"loss/{precision} {name}"] = np.append(
                losses[f"{key}_items"], losses[f"{key}_loss"]
            )
            for level in LEVELS:
                place = f"loss gradients/{precision} {name} {level}"
                arrays[place] = losses[f"{key}_gp{level}"]
    arrays |= {f"gradients/{n}": x for n, x in read(golden, "grads_fp32").items()}
    statistics = read(golden, "bn_after_one_train_forward")
    return arrays | {f"batchnorm/{name}": array for name, array in statistics.items()}


def measure(golden: Path) -> Arrays:
    """Forward, decoded boxes, loss and gradients of the stored weights on the stored inputs."""
    # Bound here: see the top of the file.
    from backend import nn
    from models.detector import Detector
    from models.graph import read_model_yaml

    model = Detector(read_model_yaml(CONFIG))
    nn.load_state_arrays(model, read(golden, "state_fp32"))
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    loss = model.head.make_loss(hyp, IMAGE_SIZE)
    return {
        **measure_forward(golden, model),
        **dict(measure_loss(golden, loss)),
        **measure_backward(golden, model, loss),
    }


def measure_forward(golden: Path, model: Detector) -> Arrays:
    from tests.parity.side import run_recorded

    layers, decoded = run_recorded(model, read(golden, "inputs")["random"])
    last = len(model.spec.layers) - 1
    arrays = {"decoded boxes/all": decoded}
    for index in range(last):
        x = layers[f"layer {index:02d}/0"].astype(np.float64)
        arrays[f"layer {index:02d}/mean"] = x.mean()
        arrays[f"layer {index:02d}/std"] = x.std(ddof=1)
        arrays[f"layer {index:02d}/L2"] = np.sqrt((x * x).sum())
    return arrays | {f"raw maps/{level}": layers[f"layer {last:02d}/{level}"] for level in LEVELS}


def measure_loss(golden: Path, loss: Loss) -> Iterator[tuple[str, np.ndarray]]:
    """Terms and gradients for the stored predictions, so that no network stands between."""
    from backend import autograd, ops

    losses = read(golden, "train_loss")
    for precision in PRECISIONS:
        for name in TARGETS:
            raw = [autograd.variable(losses[f"{precision}_random_p{level}"]) for level in LEVELS]
            terms = loss(raw, read_targets(golden, name))
            # The stored terms are float32 for both precisions.
            figures = [np.float32(array) for array in arrays_of(terms).values()]
            yield f"loss/{precision} {name}", np.array(figures)
            for level, gradient in zip(LEVELS, autograd.gradients(terms.total, raw), strict=True):
                yield f"loss gradients/{precision} {name} {level}", ops.to_numpy(gradient)


def measure_backward(golden: Path, model: Detector, loss: Loss) -> Arrays:
    from backend import autograd, nn, ops

    model.train()
    images = ops.tensor(read(golden, "inputs")["random"])
    targets = read_targets(golden, "random")
    autograd.value_and_backward(model, loss, images, targets, StageTimer())
    arrays = {
        f"gradients/{name}": ops.to_numpy(parameter.grad)
        for name, parameter in nn.named_parameters(model)
    }
    state = nn.state_arrays(model)
    return arrays | {
        f"batchnorm/{name}": state[name] for name in read(golden, "bn_after_one_train_forward")
    }
