"""Some training steps in float64, alone or as one of several ranks; writes what they learnt.

`python -m tests.distributed.training_worker FOLDER DEVICES CASE...` under a launcher, or `learn` in
a process. On CPUs each rank then runs the conformance checks of `dist`, and writes what failed. On
emulated GPUs it is `-m tests.emulated.program tests/distributed/training_worker.py`.
"""

# ruff: noqa: E402
import json
import math
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from duet import backend

backend.use()  # before the models, whose classes derive from the framework's

from duet.backend import nn
from duet.backend.processes import this_process
from duet.models.evaluation.evaluate import Evaluation
from duet.models.graph import read_model_yaml
from duet.models.training.start import build_state
from duet.models.training.step import TrainState, settle, train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import TrainRecipe, ValRecipe
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import Sample
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.command import run_command
from duet.utils.processes.world import World
from duet.utils.system.children import delay_abort
from tests.conformance.checks_dist import network  # noqa: F401  registers its checks
from tests.conformance.judging import CHECKS, Backend
from tests.frameworks import keep_compiler_out
from tests.small import (
    write_class_folders,
    write_classifier_yaml,
    write_outlined_dataset,
    write_segmenter_yaml,
    write_small_dataset,
    write_small_model,
    write_tiny_anchor_free,
    write_tiny_model,
)

TIMEOUT_S = 240.0
IMAGES, BATCH, EPOCHS = 9, 4, 2  # the last batch of an epoch has one image: a rank has none
CASES = {
    "sync-bn": ["--sync-bn"],
    "own statistics": [],
    "multi-tensor": ["--sync-bn", "--multi_tensor_optimizer", "--optimizer", "AdamW"],
    "frozen": ["--sync-bn", "--freeze", "2"],
    # Two batches an update, once from two epochs.
    "accumulating": ["--sync-bn", "--batch", "32", "--bbox_iou_optim"],
    "objects on one rank": ["--sync-bn", "--optimizer", "Adam"],
    "not finite": ["--sync-bn"],
    "pieces on one rank": [],
    "anchor-free": ["--sync-bn", "--bbox_iou_optim"],
    "masks": ["--sync-bn"],
    "classifier": ["--sync-bn", "--dropout", "0.3", "--label-smoothing", "0.1"],
    "loss of other kinds": ["--sync-bn", "--label-smoothing", "0.1", "--override", "fl_gamma=1.5"],
}
DETECTOR_FILES = ("shapes/shapes.yaml", "tiny.yaml")
FILES = {
    **dict.fromkeys(("sync-bn", "accumulating"), ("shapes/shapes.yaml", "narrow.yaml")),
    "anchor-free": ("shapes/shapes.yaml", "tiny-free.yaml"),
    "masks": ("outlines/shapes.yaml", "tiny-seg.yaml"),
    "classifier": ("colours", "tiny-cls.yaml"),
}
OWN_STATISTICS = {"own statistics", "pieces on one rank"}
SPOILED = 1  # in this batch the case "not finite" spoils the last image, on its rank only
Arrays = dict[str, np.ndarray]


def learn(folder: Path, case: str, device: str = "cpu") -> Arrays:
    """Return weights, EMA, optimizer state and losses after some steps.

    In the cases of OWN_STATISTICS BatchNorm uses its running statistics, because batch statistics
    differ between ranks and pieces.
    """
    from duet.models.detector import Detector

    data, cfg = (str(folder / name) for name in FILES.get(case, DETECTOR_FILES))
    flags = ["--data", data, "--cfg", cfg, "--img", "64", "--batch", str(BATCH), "--device", device]
    config = parse_train_flags([*flags, "--epochs", str(EPOCHS), "--workers", "0", *CASES[case]])
    hyp = read_hyperparameters(config.hyp, config.override)
    if case == "accumulating":
        hyp = replace(hyp, warmup_epochs=0.0, box=10 * hyp.box)  # gradients are clipped
    dataset = load_dataset(config.data)
    samples = load_split(dataset, "train")[:IMAGES]
    world = World(this_process(), backend.dist.all_gather)
    model = Detector(read_model_yaml(config.cfg, len(dataset.class_names)))
    model.initialize(config.seed)
    items, strengths = model.head.task.items.load(), hyp.augmentation()
    loader = TrainLoader(samples, TrainRecipe(64, BATCH, strengths, items=items), world=world)
    state = build_state(config, hyp, model, len(loader), device, "float64")
    if case == "accumulating" and world.process.world_size == 1:
        nn.synchronize_batch_norm(state.model)  # the same formulas: clipping makes rounding 1e-8
    if case in OWN_STATISTICS:
        state.model.eval()
    if case == "pieces on one rank" and this_process().rank == 1:
        state.micro_batch = 1
    losses, forward = [], state.forward
    for epoch in range(EPOCHS):
        for batch in loader.epoch(epoch):
            if case == "objects on one rank":
                batch = with_objects_of_first(batch)
            spoils = case == "not finite" and state.batch_number == SPOILED
            spoils = spoils and batch.global_indices[-1] in batch.sample_indices
            state.forward = (lambda images: forward(images * math.nan)) if spoils else forward
            train_step(state, batch, StageTimer())
        settle(state)
        state.epoch += 1
        losses.append(state.watch.end_epoch())
    if case == "own statistics" and this_process().rank == 1:
        shift_statistics(state.ema.model)  # rank 0's take their place
    state.ema.agree()
    learnt = {
        **{f"model/{name}": array for name, array in nn.state_arrays(state.model).items()},
        **{f"ema/{name}": array for name, array in nn.state_arrays(state.ema.model).items()},
        **{f"optimizer/{name}": x for name, x in state.optimizer.state_arrays().items()},
        "losses": np.array(losses),
        "updates": np.array(state.ema.updates),
    }
    if case == "sync-bn":
        learnt["validation"] = validation_losses(state, samples, world, dataset.class_names, device)
    return learnt


def shift_statistics(model: Any) -> None:
    """Make BatchNorm's running statistics other than they are."""
    arrays = nn.state_arrays(model)
    nn.load_state_arrays(model, {x: a + 1 if ".running_" in x else a for x, a in arrays.items()})


def validation_losses(
    state: TrainState, samples: list[Sample], world: World, class_names: list[str], device: str
) -> np.ndarray:
    """Return the EMA's losses in float32 on batches of two, two and one: a rank lacks the last."""
    model = nn.place(state.ema.model, device, "float32")
    with ValLoader(samples[:5], ValRecipe(64, 2, model.stride), world=world) as loader:
        evaluation = Evaluation(model, samples[:5], class_names, device, loss=state.loss)
        return evaluation.run(loader).losses


def with_objects_of_first(batch: Batch) -> Batch:
    """Return the targets with only the objects of the first image of the whole batch."""
    kept = batch.sample_indices[batch.targets.image_index] == batch.global_indices[0]
    return batch._replace(targets=batch.targets.take(kept))


def write_inputs(folder: Path) -> None:
    write_small_dataset(folder)
    write_small_model(folder)
    write_tiny_model(folder)
    write_tiny_anchor_free(folder)
    write_outlined_dataset(folder)
    write_segmenter_yaml(folder)
    write_class_folders(folder / "colours")
    write_classifier_yaml(folder)


def write_failed_checks(folder: Path) -> None:
    failures = {}
    for check in CHECKS:
        try:
            check.run(Backend())
        except AssertionError:
            failures[check.label] = traceback.format_exc()
    document = {"world_size": this_process().world_size, "failures": failures}
    (folder / f"rank{this_process().rank}.json").write_text(json.dumps(document))


def main(folder: Path, devices: str, cases: list[str]) -> None:
    device = backend.device.resolve(devices)
    backend.dist.start(device, TIMEOUT_S)
    delay_abort()  # as a command does: one of OneFlow's ranks leaves before the other
    for case in cases:
        name = f"{devices} {case} {this_process().rank}.npz"
        np.savez(folder / name, **learn(folder, case, device))  # type: ignore[arg-type]
    if devices == "cpu":
        write_failed_checks(folder)
    backend.dist.stop()


if __name__ == "__main__":
    keep_compiler_out()
    run_command(lambda: main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]), several=True)
