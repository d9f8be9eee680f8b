"""The figures of the model and of its files on the images of --data, in one table.

Before: `verify.py` found a file to be right. After: the table, and for int8 whether a file is kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from backend import autograd
from backend.checks import CPU
from backend.words import count
from models.evaluation import evaluate
from models.heads.base import Head
from models.inference.protocol import Predictor, network_input
from utils.data.loading.items import Items
from utils.data.loading.loader import ValLoader
from utils.data.sources.samples import Sample
from utils.errors import UserError
from utils.evaluation.nms import SuppressionSettings
from utils.runtimes.metadata import MASKS, ROWS, Metadata

INT8 = "int8"
# Of `Head.fitness`, by which the best weights are chosen. The same rows give the same figures, up
# to scores that change places; 8 bits cost some, and above this they have broken the model.
MOST_LOST = {"float32": 0.001, "float16": 0.005, INT8: 0.05}
# In 8 bits also as a part of the model's fitness, which may itself be small; the public YOLOv5n
# lost 0.002 of 0.334. Below `LEAST_FITNESS` differences are chance.
MOST_LOST_PART, LEAST_FITNESS = 0.2, 0.02
# Besides, of a file that cuts masks at the size of the prototypes: in pixels their borders lie
# elsewhere (their IoU with those of the model was above 0.99), which mAP at 0.95 notices.
COARSE = 0.02
LOUD = 0.01  # what is lost above it is said
# Of what the model finds, in 8 bits: right files of the public YOLOv5n had 19 of 20 and 31 of 32,
# of random weights 746 of 800, ruined files 0 of 20. Of fewer than `FEW` it may be chance.
LEAST_MATCHED, FEW = 0.5, 10
BATCH, REPEATS = 8, 9


class Dataset(NamedTuple):
    """The images of --data."""

    name: str
    class_names: tuple[str, ...]
    samples: Sequence[Sample]
    is_of_folders: bool = False  # which label the images


class Score(NamedTuple):
    """A line of the table: the model, or a file.

    Attributes:
        figures: as the head names them.
        milliseconds: of one image, the median.
        megabytes, difference: of a file; "" of the model.
    """

    name: str
    figures: Mapping[str, float]
    fitness: float
    milliseconds: float
    megabytes: str = ""
    difference: str = ""


def require_same_classes(dataset: Dataset, head: Head) -> None:
    """Raise UserError if a dataset has another number of classes than the model."""
    if len(dataset.class_names) != head.num_classes:
        raise UserError(
            f"--data {dataset.name} has {count(len(dataset.class_names), 'class', 'classes')}, the "
            f"model {head.num_classes}; they must be equal"
        )


def score(
    name: str,
    predictor: Predictor,
    dataset: Dataset,
    metadata: Metadata,
    settings: SuppressionSettings,
) -> Score:
    """Run on all images of a dataset, viewed alike for the model and all files, and time it."""
    samples = dataset.samples
    items = predictor.head.task.val_items
    with loader_of(samples, metadata, items) as loader:
        first = next(iter(loader)).images[: metadata.batch_size]
        result = evaluate(predictor, loader, samples, dataset.class_names, CPU, settings).result
    took = milliseconds(predictor, first, settings.confidence_threshold)
    head = predictor.head
    return Score(name, head.figures(result), head.fitness(result), took)


def loader_of(samples: Sequence[Sample], metadata: Metadata, items: Items) -> ValLoader:
    """Make the loader of images in the size of a file."""
    size, batch = max(metadata.image_size), max(metadata.batch_size, BATCH)
    fixed = metadata.image_size
    return ValLoader(samples, size, batch, 0, metadata.stride, fixed_size=fixed, items=items)


def milliseconds(predictor: Predictor, images: np.ndarray, confidence_threshold: float) -> float:
    """Return the median time of an image (B, 3, H, W) uint8: network and decoding."""
    taken = network_input(predictor, images, CPU)
    times = []
    for _ in range(1 + REPEATS):
        begin = time.perf_counter()
        with autograd.no_grad():
            predictor.decode_above(predictor(taken), confidence_threshold)
        times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times[1:]) / len(images)


def fault_of_score(found: Score, model: Score, precision: str, output: str = ROWS) -> str:
    """Return in words how much worse a file is than the model, if that is too much; else ""."""
    lost, most = model.fitness - found.fitness, MOST_LOST[precision]
    if precision == INT8 and model.fitness >= LEAST_FITNESS:
        most = min(most, MOST_LOST_PART * model.fitness)
    if output == MASKS:
        most += COARSE
    if lost <= most:
        return ""
    return (
        f"on --data it detects worse than the model: fitness {found.fitness:.4f}, the model's "
        f"{model.fitness:.4f}; at most {most:.2g} less is accepted"
    )


def warning_of_score(found: Score, model: Score, precision: str) -> str:
    """Return what a user should know of a file that is kept; "" if nothing."""
    lost = model.fitness - found.fitness
    if precision == INT8 and model.fitness < LEAST_FITNESS:
        return (
            f"{found.name}: the model's own fitness on --data is {model.fitness:.4f}, too low to "
            "tell what 8 bits cost; give the dataset that it was trained for"
        )
    if lost > LOUD:
        return f"{found.name}: fitness on --data is {lost:.4f} lower than the model's"
    return ""


def fault_of_matches(
    num_matched: int, num_found: int, precision: str, things: str = "detection"
) -> str:
    """Return in words that a file in 8 bits misses too much of what the model finds; else ""."""
    if precision != INT8 or num_found < FEW or num_matched >= LEAST_MATCHED * num_found:
        return ""
    return (
        f"it finds {num_matched:,} of the model's {count(num_found, things)}; at least "
        f"{LEAST_MATCHED:.0%} is needed"
    )


def table(scores: Sequence[Score], head: Head) -> list[str]:
    """Return the lines of the table; the first score is the model's."""
    figures = list(head.figure_names.values())
    rows = [("", "MB", *figures, "ms/image", "largest difference")]
    for one in scores:
        values = (f"{value:.4f}" for value in one.figures.values())
        rows.append((one.name, one.megabytes, *values, f"{one.milliseconds:.1f}", one.difference))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [_line(row, widths) for row in rows]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(row, widths, strict=True)
    cells = [f"{first[0]:<{first[1]}}", *(f"{text:>{width}}" for text, width in others)]
    return "  ".join(cells).rstrip()
