"""One backend's side of `python -m tests.parity`: run everything, write every number.

`python -m tests.parity.side SETTINGS OUT` under YOLO_BACKEND. SETTINGS is a JSON file with the
fields of `Settings`; OUT.npz names its arrays "SECTION/ROW/ITEM", as `__main__.py` has them.

`python -m tests.parity.side SIZE BATCH CASES` trains a few steps each. CASES is a JSON list of
lists (OUT, DATA, MODEL, HYP, DTYPE, STEPS).
"""

# ruff: noqa: E402
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from duet import backend

backend.use()  # before the models, whose classes derive from the framework's

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector, images_to_tensor
from duet.models.graph import read_model_yaml
from duet.models.heads.base import LossSettings, LossTerms
from duet.models.training.start import build_state
from duet.models.training.step import TrainState, train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    Hyperparameters,
    read_hyperparameters,
)
from duet.utils.cli.train_config import OPTIMIZERS, parse_train_flags
from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.evaluation.nms import SuppressionSettings, non_max_suppression
from duet.utils.processes.command import run_command
from tests.golden_models import arrays_of
from tests.parity.__main__ import DTYPES, Settings

SEED = 0
CONFIDENCE, IOU = 0.4, 0.45  # leave some hundred candidates of which some overlap

Arrays = dict[str, np.ndarray]


class Side:
    """The parts that the comparisons share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        dataset = load_dataset(settings.data)
        self.samples = load_split(dataset, "train")
        self.spec = read_model_yaml(settings.cfg, len(dataset.class_names))
        self.hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
        size, batch = settings.image_size, settings.batch_size
        self.flags = ["--cfg", settings.cfg, "--img", str(size), "--batch", str(batch)]
        model = Detector(self.spec)
        model.initialize(SEED)
        # Of a run from scratch, and the same with BatchNorm and head as if trained, so that much
        # is detected.
        self.first_state = nn.state_arrays(model)
        first = next(array for array in self.first_state.values() if array.ndim == 4)
        first[0, 0, 0, 0] += settings.nudge
        self.lively_state = {**self.first_state, **draw_lively(self.first_state)}

    def loader(self) -> TrainLoader:
        config, augment = parse_train_flags(self.flags), self.hyp.augmentation()
        recipe = TrainRecipe(config.image_size, config.batch_size, augment, SEED)
        return TrainLoader(self.samples, recipe)

    def model(self, state: Arrays, dtype: str) -> Detector:
        model = Detector(self.spec)
        nn.load_state_arrays(model, state)
        return nn.place(model, "cpu", dtype)

    def first_batch(self) -> Batch:
        with self.loader() as loader:
            return next(iter(loader.epoch(0)))


def main(settings_path: str, out: str) -> None:
    settings = Settings(**json.loads(Path(settings_path).read_text(encoding="utf-8")))
    side = Side(settings)
    arrays = {f"exact/weights/{name}": array for name, array in side.lively_state.items()}
    arrays |= compare_batches(side) | compare_drawn_boxes()
    for dtype in DTYPES:
        found = compare_forward(side, dtype) | compare_backward(side, dtype)
        if dtype == "float64":
            found |= compare_detections(found["decoded boxes/all"])
        for optimizer in OPTIMIZERS:
            found |= compare_steps(side, dtype, optimizer)
        arrays |= {f"{dtype}/{name}": array for name, array in found.items()}
    np.savez(Path(out), **arrays)


def draw_lively(state: Arrays) -> Arrays:
    """Values for BatchNorm and for the head's biases that keep activations near 1."""
    generator = np.random.Generator(np.random.Philox(key=[SEED, 1]))
    draws: dict[str, Callable[[tuple[int, ...]], np.ndarray]] = {
        "bn.weight": lambda shape: generator.uniform(0.5, 1.5, shape),
        "bn.bias": lambda shape: generator.normal(0.0, 0.3, shape),
        "bn.running_mean": lambda shape: generator.normal(0.0, 0.1, shape),
        "bn.running_var": lambda shape: generator.uniform(0.1, 0.3, shape),
        "bias": lambda shape: generator.normal(0.0, 1.0, shape),
    }
    return {
        name: draw(array.shape).astype(np.float32)
        for name, array in state.items()
        if (draw := next((d for end, d in draws.items() if name.endswith(end)), None)) is not None
    }


def compare_batches(side: Side) -> Arrays:
    """Pictures and targets of an epoch."""
    arrays = {}
    with side.loader() as loader:
        for index, batch in enumerate(loader.epoch(0)):
            arrays[f"exact/batches/{index} images"] = batch.images
            for number, value in enumerate(batch.targets.arrays()):
                arrays[f"exact/batches/{index} targets {number}"] = value
    return arrays


def compare_drawn_boxes() -> Arrays:
    """Suppression among drawn boxes, many of the same score."""
    generator = np.random.Generator(np.random.Philox(key=[SEED, 2]))
    centres, sizes = generator.uniform(0, 640, (3000, 2)), generator.uniform(10, 200, (3000, 2))
    scores = generator.integers(0, 20, (3000, 5)) / 20
    decoded = np.concatenate([centres, sizes, scores], axis=1).astype(np.float32)
    found = non_max_suppression(decoded, SuppressionSettings(CONFIDENCE, IOU))
    return {f"exact/nms of drawn boxes/{n}": x for n, x in found._asdict().items()}


def compare_forward(side: Side, dtype: str) -> Arrays:
    """Each layer in evaluation mode, and the boxes decoded from the last."""
    model = side.model(side.lively_state, dtype)
    images = images_to_tensor(side.first_batch().images, "cpu", dtype)
    arrays, decoded = run_recorded(model, ops.to_numpy(images))
    return {**arrays, "decoded boxes/all": decoded}


def compare_detections(decoded: np.ndarray) -> Arrays:
    """What is chosen of the decoded boxes, image by image."""
    settings = SuppressionSettings(CONFIDENCE, IOU)
    return {
        f"nms/{image} {name}": value
        for image, rows in enumerate(decoded.astype(np.float32))
        for name, value in non_max_suppression(rows, settings)._asdict().items()
    }


def run_recorded(model: Detector, images: np.ndarray) -> tuple[Arrays, np.ndarray]:
    """What each layer returns in evaluation mode as "layer NN/OUTPUT", and the decoded boxes."""
    model = nn.frozen_copy(model)
    arrays: Arrays = {}
    for index, layer in enumerate(model.model):
        layer.forward = recorded(layer.forward, f"layer {index:02d}", arrays)
    with autograd.no_grad():
        decoded = ops.to_numpy(model.decode(model(ops.tensor(images))))
    return arrays, decoded


def recorded(forward: Callable[..., Any], name: str, arrays: Arrays) -> Callable[..., Any]:
    """The same forward, which keeps what it returns."""

    def record(*inputs: Any) -> Any:
        outputs = forward(*inputs)
        levels = outputs if isinstance(outputs, tuple) else (outputs,)
        for level, output in enumerate(levels):
            arrays[f"{name}/{level}"] = ops.to_numpy(output)
        return outputs

    return record


def compare_backward(side: Side, dtype: str) -> Arrays:
    """Loss terms, gradients and BatchNorm statistics of one batch in training."""
    model = side.model(side.lively_state, dtype)
    model.train()
    batch, size = side.first_batch(), side.settings.image_size
    images = images_to_tensor(batch.images, "cpu", dtype)
    terms = autograd.value_and_backward(
        model,
        model.head.make_loss(LossSettings(side.hyp.loss_gains(), size)),
        images,
        batch.targets,
        StageTimer(),
    )
    arrays = {f"loss {name}/": array for name, array in arrays_of(terms).items()}
    for name, parameter in nn.named_parameters(model):
        arrays[f"gradients/{name}"] = ops.to_numpy(parameter.grad)
    arrays |= {f"batchnorm/{name}": x for name, x in statistics(nn.state_arrays(model))}
    return arrays


def compare_steps(side: Side, dtype: str, optimizer: str) -> Arrays:
    """Losses of so many optimizer steps of train.py, and what they lead to."""
    config = parse_train_flags([*side.flags, "--optimizer", optimizer])
    losses: list[LossTerms] = []
    with side.loader() as loader:
        hyp = slowed(side.hyp, optimizer)
        model = side.model(side.first_state, dtype)
        state = build_state(config, hyp, model, len(loader), "cpu", dtype)
        while state.ema.updates < side.settings.steps:
            losses.extend(terms_of_epoch(side, state, loader))
            state.epoch += 1
    trained = nn.state_arrays(state.model)
    parameters = {name: trained[name] for name, _ in nn.named_parameters(state.model)}
    groups = {
        "parameters": parameters,
        "batchnorm": dict(statistics(trained)),
        "ema": nn.state_arrays(state.ema.model),
        "state": state.optimizer.state_arrays(),
        "losses": {
            "all": np.array([list(arrays_of(terms).values()) for terms in losses], np.float64)
        },
    }
    return {
        f"{optimizer} {group}/{name}": array
        for group, arrays in groups.items()
        for name, array in arrays.items()
    }


def terms_of_epoch(side: Side, state: TrainState, loader: TrainLoader) -> Iterator[LossTerms]:
    for batch in loader.epoch(state.epoch):
        if state.ema.updates < side.settings.steps:
            yield train_step(state, batch, StageTimer())


def slowed(hyp: Hyperparameters, optimizer: str) -> Hyperparameters:
    """The public recipe at a tenth of its rates, and of Adam's usual one.

    At the full rates SGD's first steps double any difference: PyTorch's own float32 and float64
    losses are 1e-2 apart after 20 of them, and gradients that agree to 1e-12 give weights that
    agree to 3e-6.
    """
    if optimizer == "SGD":
        return dataclasses.replace(hyp, lr0=0.1 * hyp.lr0, warmup_bias_lr=0.1 * hyp.warmup_bias_lr)
    return dataclasses.replace(hyp, lr0=0.01 * hyp.lr0, warmup_bias_lr=0.01 * hyp.lr0)


def statistics(state: Arrays) -> Iterator[tuple[str, np.ndarray]]:
    """What BatchNorm has counted and averaged."""
    ends = ("running_mean", "running_var", "num_batches_tracked")
    return ((name, array) for name, array in state.items() if name.endswith(ends))


def train(
    size: str, batch_size: str, out: str, data: str, cfg: str, hyp_path: str, dtype: str, steps: int
) -> None:
    """Write the losses of some steps, and the EMA that they lead to."""
    config = parse_train_flags(["--cfg", cfg, "--img", size, "--batch", batch_size])
    hyp = read_hyperparameters(hyp_path)
    dataset = load_dataset(data)
    samples = load_split(dataset, "train")
    model = Detector(read_model_yaml(cfg, len(dataset.class_names)))
    model.initialize(SEED)
    augment, items = hyp.augmentation(), model.head.task.items.load()
    recipe = TrainRecipe(config.image_size, config.batch_size, augment, config.seed, items=items)
    losses: list[list[float]] = []
    with TrainLoader(samples, recipe) as loader:
        state = build_state(config, hyp, model, len(loader), "cpu", dtype)
        while len(losses) < steps:
            for batch in loader.epoch(state.epoch):
                terms = train_step(state, batch, StageTimer())
                losses.append([float(array) for array in arrays_of(terms).values()])
            state.epoch += 1
    arrays = {f"ema/{name}": array for name, array in nn.state_arrays(state.ema.model).items()}
    np.savez(Path(out), losses=np.array(losses[:steps]), **arrays)


def train_all(size: str, batch_size: str, cases: str) -> None:
    for case in json.loads(cases):
        train(size, batch_size, *case)


if __name__ == "__main__":
    run_command(lambda: (main if len(sys.argv) == 3 else train_all)(*sys.argv[1:]))
