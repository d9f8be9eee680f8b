"""What export.py does with the images of --data: calibrates 8 bits, and scores model and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from duet.backend.checks import CPU
from duet.models.evaluation.evaluate import evaluate
from duet.models.export.verify import INT8, evenly
from duet.models.heads.base import Head
from duet.models.inference.predictors import Predictor
from duet.utils.data.image.view import View, whole_view
from duet.utils.data.loading.items import items_of
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.loading.reading import read_ahead
from duet.utils.data.sources.samples import Sample
from duet.utils.detections import SuppressionSettings
from duet.utils.export.metadata import MASKS, Metadata
from duet.utils.export.quantization import Calibration

MOST_IMAGES = 64  # that calibrate; ranges of 128 gain nothing, see docs/en/export.md
# Of `Head.fitness`, by which the best weights are chosen. The same rows give the same figures, up
# to scores that change places; 8 bits cost some, and above this they have broken the model.
MOST_LOST = {"float32": 0.001, "float16": 0.005, INT8: 0.05}
# Besides, of a file that cuts masks at the size of the prototypes: in pixels their borders lie
# elsewhere (their IoU with those of the model was above 0.99), which mAP at 0.95 notices.
COARSE = 0.02
BATCH = 8


class Dataset(NamedTuple):
    """The images of --data."""

    name: str
    class_names: tuple[str, ...]
    samples: Sequence[Sample]
    is_of_folders: bool = False  # which label the images


def calibration_batch(metadata: Metadata) -> int:
    """Return the fewest images that a call of the file takes: all their maps are held at once."""
    return 1 if metadata.dynamic else metadata.batch_size


def calibration_images(
    samples: Sequence[Sample], metadata: Metadata, view: Callable[..., View] = whole_view
) -> Calibration:
    """Return a function that yields images of a split, chosen evenly, each time the same.

    They are as the file takes them: (B, 3, H, W) float32, as detect.py views them, the last batch
    filled with its last image.

    Args:
        view: `Task.view`.
    """
    chosen = evenly(samples, MOST_IMAGES)

    def images() -> Iterator[np.ndarray]:
        size, sides = calibration_batch(metadata), metadata.image_size
        for start in range(0, len(chosen), size):
            batch = list(read_ahead(chosen[start : start + size]))
            batch += batch[-1:] * (size - len(batch))
            views = [view(image, max(sides), metadata.stride, sides).pixels for image in batch]
            yield np.stack(views).transpose(0, 3, 1, 2) / np.float32(255)

    return images


class Score(NamedTuple):
    """A line of the table: the model, or a file.

    Attributes:
        figures: as the head names them.
        megabytes, difference: of a file; "" of the model.
    """

    name: str
    figures: Mapping[str, float]
    fitness: float
    megabytes: str = ""
    difference: str = ""


def score(
    name: str,
    predictor: Predictor,
    dataset: Dataset,
    metadata: Metadata,
    settings: SuppressionSettings,
) -> Score:
    """Run on all images of a dataset, viewed alike for the model and all files."""
    samples, size, head = dataset.samples, metadata.image_size, predictor.head
    batch = max(metadata.batch_size, BATCH)
    with ValLoader(
        samples,
        max(size),
        batch,
        0,
        metadata.stride,
        fixed_size=size,
        items=items_of(head.task.name),
    ) as loader:
        result = evaluate(predictor, loader, samples, dataset.class_names, CPU, settings).result
    return Score(name, head.metrics(result), head.fitness(result))


def fault_of_score(found: Score, model: Score, metadata: Metadata) -> str:
    """Return in words how much worse a file is than the model, if that is too much; else ""."""
    most = MOST_LOST[metadata.precision] + COARSE * (metadata.output == MASKS)
    if model.fitness - found.fitness <= most:
        return ""
    return (
        f"on --data it detects worse than the model: fitness {found.fitness:.4f}, the model's "
        f"{model.fitness:.4f}; at most {most:.2g} less is accepted"
    )


def table(scores: Sequence[Score], head: Head) -> list[str]:
    """Return the lines of the table; the first score is the model's."""
    rows = [("", "MB", *head.metric_names.values(), "largest difference")]
    for one in scores:
        values = (f"{value:.4f}" for value in one.figures.values())
        rows.append((one.name, one.megabytes, *values, one.difference))
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = ((row[0].ljust(first), *map(str.rjust, row[1:], others)) for row in rows)
    return ["  ".join(cells).rstrip() for cells in lines]
