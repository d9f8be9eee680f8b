"""card.md of a run: what the weights were made from, and how good they are."""

import platform
from collections.abc import Iterator
from pathlib import Path

from duet import backend
from duet.models.heads.base import Result
from duet.models.training.step import TrainState
from duet.utils.files.atomic import atomic_text_file
from duet.utils.report.task_reports import map_interval
from duet.utils.state.job import Job
from duet.utils.text import printable

CARD = "card.md"
SHOWN = 12  # characters of a hash


def write_card(folder: Path, job: Job, state: TrainState, epoch: int, result: Result) -> None:
    """Write card.md into a run's folder.

    Args:
        epoch: the best one, from 1.
        result: its validation result, read by `Head.metrics`.
    """
    rows = [*source_rows(job, state), *metric_rows(state, epoch, result)]
    with atomic_text_file(folder / CARD) as file:
        file.write(f"# {printable(folder.name)}\n\n|  |  |\n|---|---|\n")
        file.writelines(f"| {name} | {_cell(value)} |\n" for name, value in rows)


def source_rows(job: Job, state: TrainState) -> Iterator[tuple[str, str]]:
    config, task = job.config, state.model.head.task
    yield "model", f"{Path(config.cfg or config.weights or task.model).name}, task {task.name}"
    yield "classes", ", ".join(job.data.class_names)
    part = f", --split {config.train_part}" if config.train_part else ""
    yield "data", f"{config.data}{part}"
    for split, digest in job.data.digests.items():
        yield f"{split} images", f"{digest['images']:,}, SHA-256 {digest['sha256'][:SHOWN]}"
    how = f"{config.hyp.name} {' '.join(config.override)}, {config.image_size} px"
    steps = (
        f"batch {config.batch_size}, {config.optimizer}, {state.epoch} of {config.epochs} epochs"
    )
    yield "recipe", f"{how}, {steps}"
    yield "seed", str(config.seed)
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield "software and machine", f"{backend.device.describe(state.device)}, {system}"
    yield "licence of the initial weights", licence_of(config.weights)


def licence_of(weights: str) -> str:
    """Return what is known of the licence of the weights that a training started from."""
    if not weights:
        return "none: trained from scratch"
    if weights.endswith(".pt"):
        return f"{weights}: AGPL-3.0 if public weights of YOLOv5 or YOLOv8, and so are these"
    return f"{weights}: as {CARD} of its run says"


def metric_rows(state: TrainState, epoch: int, result: Result) -> Iterator[tuple[str, str]]:
    """Yield the metrics of the best epoch; mAP50-95 with its interval over images."""
    head = state.model.head
    yield "best epoch", str(epoch)
    for name, value in head.metrics(result).items():
        yield name, f"{value:.4f}"
    if bounds := map_interval(head.task.report.load(), result):
        yield "mAP50-95, 95 % interval over images", "{:.4f} to {:.4f}".format(*bounds)


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")
