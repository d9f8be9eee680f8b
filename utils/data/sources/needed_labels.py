"""The labels that each task needs, and the next step if a dataset lacks them."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from duet.utils.data.sources.class_folders import fill_images
from duet.utils.data.sources.samples import SampleTable
from duet.utils.errors import DatasetError
from duet.utils.text import count

log = logging.getLogger("data")


def check_labels(task: str, samples: SampleTable, name: str, is_of_folders: bool = False) -> None:
    """Raise DatasetError for samples whose labels are not those of a task.

    Args:
        task: name of a task; tasks without an entry in CHECKS accept any labels.
        name: name of the dataset.
        is_of_folders: folder names are the labels.
    """
    if task in CHECKS:
        CHECKS[task](samples, name, is_of_folders)


def check_labels_to_score(
    task: str, samples: SampleTable, name: str, weights: str, is_of_folders: bool = False
) -> None:
    """Like `check_labels`, for validating weights of the task; the message names them."""
    try:
        check_labels(task, samples, name, is_of_folders)
    except DatasetError as error:
        raise DatasetError(f"--weights {weights}: its task is {task}; --data {error}") from error


def _boxes(samples: SampleTable, name: str, is_of_folders: bool) -> None:
    """Refuse folders of classes, but not labels of objects that fill their image."""
    if is_of_folders:
        raise DatasetError(
            f"{name}: its images are in folders named for their classes, and where an object lies "
            "is not labelled; take a classifier, which train.py makes with --task classify, or "
            "--cfg yolov5s-cls.yaml"
        )


def _outlines(samples: SampleTable, name: str, is_of_folders: bool) -> None:
    _boxes(samples, name, is_of_folders)
    if samples.polygons_norm is None:
        raise DatasetError(
            f"{name}: its labels are boxes, but masks need polygons: a line 'class x1 y1 x2 y2 "
            "x3 y3 ...' per object; add polygons, or train a detector with --task detect or --cfg "
            "yolov5s.yaml"
        )
    num_objects = len(samples.class_index)
    if missing := num_objects - int(np.count_nonzero(samples.polygons_norm.num_points)):
        total, text = count(num_objects, "object"), "their boxes count as their masks"
        log.info("%s: %s of %s have no outline: %s", name, f"{missing:,}", total, text)


def _classes(samples: SampleTable, name: str, is_of_folders: bool) -> None:
    if not fill_images(samples):
        raise DatasetError(
            f"{name}: its labels are objects in parts of images, but a classifier needs one class "
            "per image: folders named for classes, such as train/cat and val/cat; or train a "
            "detector with --task detect or --cfg yolov5s.yaml"
        )


CHECKS: dict[str, Callable[[SampleTable, str, bool], None]] = {
    "detect": _boxes,
    "detect-anchor-free": _boxes,
    "segment": _outlines,
    "classify": _classes,
}
