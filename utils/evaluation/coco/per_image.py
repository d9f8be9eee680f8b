"""The outcome of each detection with its image: average precision over any choice of images.

Source of the intervals: Efron 1979, bootstrap; images are drawn with replacement.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet.utils.errors import UserError
from duet.utils.evaluation.coco.matching import IOU_THRESHOLDS
from duet.utils.evaluation.coco.precision import RECALL_GRID
from duet.utils.files.atomic import atomic_file
from duet.utils.files.json_files import parse_json
from duet.utils.files.regular import open_regular

FILE = "per_image.npz"
DRAWS, SEED = 1000, 0
WITHIN = (2.5, 97.5)  # percentiles of an interval


class PerImage(NamedTuple):
    """Detections (D,) of S images, sorted by class and descending score, and their objects."""

    image: np.ndarray  # (D,) int64, from 0 to S - 1
    class_index: np.ndarray  # (D,) int64
    correct: np.ndarray  # (10, D) bool: true positive, per IOU_THRESHOLDS
    counted: np.ndarray  # (10, D) bool: true or false positive
    objects: np.ndarray  # (S, C) int32, without crowds

    def average_precision(self, times: np.ndarray) -> np.ndarray:
        """Return AP50-95 of each class, (C,), NaN without objects, with image i counted times[i].

        With each image once it equals the metric.
        """
        return self._average_precisions([times])[0]

    def bootstrap(self, draws: int = DRAWS) -> np.ndarray:
        """Return AP50-95 of each class over sets of drawn images, (draws, C); equal draws for equal
        numbers of images.
        """
        generator, number = np.random.Generator(np.random.Philox(SEED)), len(self.objects)
        drawn = (generator.integers(0, number, number) for _ in range(draws))
        return self._average_precisions(np.bincount(x, minlength=number) for x in drawn)

    def _average_precisions(self, choices: Iterable[np.ndarray]) -> np.ndarray:
        """Return a row of `average_precision` for each choice of images.

        Nearly all detections are false positives at every threshold: those are only added up.
        """
        special = np.flatnonzero(self.correct.any(axis=0) | ~self.counted.all(axis=0))
        correct, ignored = self.correct[:, special], ~self.counted[:, special]
        bounds = np.searchsorted(self.class_index, np.arange(self.objects.shape[1] + 1))
        places = np.searchsorted(special, bounds)
        found = []
        for times in choices:
            num_objects, weight = times @ self.objects, times[self.image]
            before = np.append(0, np.cumsum(weight))
            row = np.full(len(num_objects), np.nan)
            for index in np.flatnonzero(num_objects).tolist():
                own = slice(places[index], places[index + 1])
                each = weight[special[own]]
                counted = before[special[own] + 1] - before[bounds[index]]
                counted = counted - np.cumsum(ignored[:, own] * each, axis=1)
                row[index] = _area(correct[:, own] * each, counted, int(num_objects[index]))
            found.append(row)
        return np.array(found)


def _area(correct: np.ndarray, counted: np.ndarray, num_objects: int) -> float:
    """Return the mean precision at 101 recalls and 10 thresholds, as `interpolated_precision`.

    Args:
        correct: (10, K) how often each detection is a true positive.
        counted: (10, K) how many detections there are up to each.
    """
    total = np.cumsum(correct, axis=1)
    precision = np.where(correct > 0, total / (counted + np.spacing(1)), 0.0)
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    envelope = np.append(envelope, np.zeros((len(total), 1)), axis=1)  # recalls not reached
    needed = np.searchsorted(np.arange(1, num_objects + 1) / num_objects, RECALL_GRID) + 1
    rows = zip(envelope, total, strict=True)
    return float(np.mean([heights[np.searchsorted(found, needed)] for heights, found in rows]))


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of bootstrapped values; NaN are draws without a class."""
    known = values[~np.isnan(values)]
    low, high = np.percentile(known, WITHIN) if len(known) else (np.nan, np.nan)
    return float(low), float(high)


def mean_over_classes(values: np.ndarray) -> np.ndarray:
    """Return the mean over the classes with objects, along the last axis; 0 if there are none."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(axis=-1)
    return np.asarray(sums / np.maximum(known.sum(axis=-1), 1))


def write_per_image(
    path: Path, found: PerImage, names: Sequence[str], class_names: Sequence[str]
) -> None:
    """Write the outcomes with the names of the images and classes."""
    words = json.dumps({"images": list(names), "classes": list(class_names)}).encode()
    with atomic_file(path) as file:
        np.savez_compressed(file, words=np.frombuffer(words, np.uint8), **found._asdict())


def read_per_image(path: Path) -> tuple[PerImage, list[str], list[str]]:
    """Read what `write_per_image` wrote: outcomes, names of images, names of classes.

    Raises:
        UserError: no such file, or damaged.
    """
    try:
        with open_regular(path) as content, np.load(content, allow_pickle=False) as file:
            words = parse_json(file["words"].tobytes())
            found = PerImage(*(file[name] for name in PerImage._fields))
        names, class_names = [*map(str, words["images"])], [*map(str, words["classes"])]
        shape = len(IOU_THRESHOLDS), len(found.image)
        fits = found.correct.shape == found.counted.shape == shape
        fits &= found.objects.shape == (len(names), len(class_names))
        fits &= found.image.shape == found.class_index.shape == shape[1:]
        fits &= [field.dtype.kind for field in found] == ["i", "i", "b", "b", "i"]
        fits &= not len(found.image) or 0 <= found.image.min() <= found.image.max() < len(names)
        if not fits:
            raise ValueError("its arrays do not fit together")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path.parent}: no {path.name} in it; give the results folders of two detectors or "
            "segmenters, such as runs/val/exp"
        ) from None
    except Exception as error:  # of NumPy, zipfile and zlib, whose classes differ
        raise UserError(f"{path}: damaged, or not written by val.py: {error!s:.200}") from error
    return found, names, class_names
