"""The labels that each task needs, and the next step if a dataset lacks them."""

from __future__ import annotations

import logging

import numpy as np

from duet.utils.data.sources.class_folders import fill_images
from duet.utils.data.sources.samples import SampleTable
from duet.utils.errors import DatasetError
from duet.utils.text import count

log = logging.getLogger("data")


def require_objects(samples: SampleTable, name: str, is_of_folders: bool) -> None:
    """Refuse folders of classes, but not labels of objects that fill their image."""
    if is_of_folders:
        raise DatasetError(
            f"{name}: its images are in folders named for their classes, and where an object lies "
            "is not labelled; take a classifier, which train.py makes with --task classify, or "
            "--cfg yolov5s-cls.yaml"
        )


def require_outlines(samples: SampleTable, name: str, is_of_folders: bool) -> None:
    require_objects(samples, name, is_of_folders)
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


def require_classes(samples: SampleTable, name: str, is_of_folders: bool) -> None:
    if not fill_images(samples):
        raise DatasetError(
            f"{name}: its labels are objects in parts of images, but a classifier needs one class "
            "per image: folders named for classes, such as train/cat and val/cat; or train a "
            "detector with --task detect or --cfg yolov5s.yaml"
        )
