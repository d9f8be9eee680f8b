"""Use the images of --data in export.py: calibrate int8, and evaluate the model and files."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet.backend import autograd
from duet.backend.checks import CPU
from duet.models.evaluation.evaluate import DEFAULT_SUPPRESSION, Evaluation
from duet.models.export.verify import INT8, evenly
from duet.models.heads.base import Head
from duet.models.inference.predictors import Predictor, network_input
from duet.utils.data.image.letterbox import View, whole_view
from duet.utils.data.loading.batches import ValRecipe
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.samples import Sample, read_ahead
from duet.utils.errors import UserError
from duet.utils.export.metadata import MASKS, Metadata
from duet.utils.export.quantization import Calibration
from duet.utils.geometry.detections import SuppressionSettings

LISTED_IMAGES = 200  # for other programs
MOST_IMAGES = 64  # for calibration; 128 gain nothing
# Maximum loss of `Head.fitness`. Equal rows give equal metrics, apart from ties in the scores; int8
# costs some accuracy, but a larger loss means that the model is broken.
MOST_LOST = {"float32": 0.001, "float16": 0.005, INT8: 0.05}
# Added for files that crop masks at prototype resolution: their borders differ slightly in pixels
# (IoU with the model's masks above 0.99), which mAP at 0.95 detects.
COARSE = 0.02
BATCH, TIMED = 8, 7


class Dataset(NamedTuple):
    name: str
    class_names: tuple[str, ...]
    samples: Sequence[Sample]
    is_of_folders: bool = False  # folder names are the labels


def calibration_images(
    samples: Sequence[Sample], metadata: Metadata, view: Callable[..., View] = whole_view
) -> Calibration:
    """Return a function that yields the same evenly spaced images of a split each time.

    Batches are (B, 3, H, W) float32, preprocessed by the task's `view`; the last one is filled.
    """
    chosen = evenly(samples, MOST_IMAGES)

    def images() -> Iterator[np.ndarray]:
        size, sides = metadata.smallest_batch, metadata.image_size
        for start in range(0, len(chosen), size):
            batch = list(read_ahead(chosen[start : start + size]))
            batch += batch[-1:] * (size - len(batch))
            views = [view(image, max(sides), metadata.stride, sides).pixels for image in batch]
            yield np.stack(views).transpose(0, 3, 1, 2) / np.float32(255)

    return images


def images_to_list(samples: Sequence[Sample]) -> list[Path]:
    """Return the files of evenly spaced images, for other programs; UserError for packed images."""
    chosen = evenly(samples, LISTED_IMAGES)
    if any(sample.record is not None for sample in chosen):
        raise UserError(
            "--calibration-list: the images are packed in record files; name the dataset they were "
            "packed from"
        )
    return [sample.image_path.absolute() for sample in chosen]


class Score(NamedTuple):
    """A row of the table: the model, or a file."""

    name: str
    metrics: Mapping[str, float]  # by the head's names
    fitness: float
    milliseconds: float  # per image, of the network and its decoding
    megabytes: str = ""  # for a file
    difference: str = ""


def score(
    name: str,
    predictor: Predictor,
    dataset: Dataset,
    metadata: Metadata,
    settings: SuppressionSettings,
) -> Score:
    """Evaluate on all images of a dataset, preprocessed equally for the model and all files."""
    samples, size, head = dataset.samples, metadata.image_size, predictor.head
    batch, items = max(metadata.batch_size, BATCH), head.task.items.load()
    recipe = ValRecipe(max(size), batch, fixed_size=size, items=items)
    with ValLoader(samples, recipe) as loader:
        evaluation = Evaluation(predictor, samples, dataset.class_names, CPU, settings)
        result = evaluation.run(loader).result
    return Score(
        name, head.metrics(result), head.fitness(result), milliseconds(predictor, metadata)
    )


def milliseconds(predictor: Predictor, metadata: Metadata) -> float:
    """Return the median time per image of the network and its decoding, in ms."""
    images = np.zeros((metadata.batch_size, 3, *metadata.image_size), np.uint8)
    seconds = []
    with autograd.no_grad():
        for _ in range(1 + TIMED):
            start = time.perf_counter()
            raw = predictor(network_input(predictor, images, CPU))
            predictor.decode_above(raw, DEFAULT_SUPPRESSION)
            seconds.append(time.perf_counter() - start)
    return 1000 * float(np.median(seconds[1:])) / len(images)


def fault_of_score(found: Score, model: Score, metadata: Metadata) -> str:
    """Describe how much worse a file is than the model; "" if within the limit."""
    most = MOST_LOST[metadata.precision] + COARSE * (metadata.output == MASKS)
    if model.fitness - found.fitness <= most:
        return ""
    return (
        f"on --data it is worse than the model: fitness {found.fitness:.4f} instead of "
        f"{model.fitness:.4f}; accepted: at most {most:.2g} less"
    )


def table(scores: Sequence[Score], head: Head) -> list[str]:
    rows = [("", "MB", "ms/image", *head.metric_names.values(), "largest difference")]
    for one in scores:
        values = (f"{value:.4f}" for value in one.metrics.values())
        rows.append((one.name, one.megabytes, f"{one.milliseconds:.1f}", *values, one.difference))
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = ((row[0].ljust(first), *map(str.rjust, row[1:], others)) for row in rows)
    return ["  ".join(cells).rstrip() for cells in lines]
