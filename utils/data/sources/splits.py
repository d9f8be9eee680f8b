"""The samples of a split: every rank reads a shard, and all ranks get all of them.

Before: `dataset.load_dataset`. After: the loaders, and `models/evaluation.py`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

import numpy as np

from utils.data.image.limits import MAX_PIXELS
from utils.data.sources.dataset_yaml import DatasetSpec
from utils.data.sources.image_files import list_images
from utils.data.sources.labels import Sample
from utils.data.sources.scan_shards import scan_shared
from utils.errors import UserError
from utils.processes import watchdog
from utils.processes.world import ALONE, World

log = logging.getLogger("data")


def load_split(
    dataset: DatasetSpec, split: str, world: World = ALONE, max_pixels: int = MAX_PIXELS
) -> list[Sample]:
    """Return the usable samples of a split; list and count on screen what is left out.

    Each rank reads its shard, and all of them return the same; the first one speaks for all.
    """
    paths = list_images(getattr(dataset, split))
    with watchdog.phase(f"reading the labels of {split}"):
        num_classes = len(dataset.class_names)
        report = scan_shared(paths, num_classes, world, watchdog.progress, max_pixels)
    if not world.process.is_main or not report.problems:
        return report.samples
    for problem in report.problems:
        log.warning("%s", problem)
    log.warning(
        "%s: %d of %d images usable, %d problems listed above",
        split,
        len(report.samples),
        len(paths),
        len(report.problems),
    )
    return report.samples


def only_classes(
    samples: list[Sample], classes: Sequence[int] | None, num_classes: int
) -> list[Sample]:
    """Return the samples with the labels of these classes; of all classes when None.

    Raises:
        UserError: a class that the dataset does not have.
    """
    if classes is None:
        return samples
    unknown = [number for number in classes if not 0 <= number < num_classes]
    if unknown:
        raise UserError(f"--classes {unknown[0]}: the dataset's classes are 0 to {num_classes - 1}")
    chosen = [np.isin(sample.class_index, classes) for sample in samples]
    return [
        dataclasses.replace(
            sample,
            class_index=sample.class_index[rows],
            boxes_cxcywh_norm=sample.boxes_cxcywh_norm[rows],
        )
        for sample, rows in zip(samples, chosen, strict=True)
    ]
