"""The figures of a checked dataset: classes, sizes before and after letterbox, anchors.

Before: `checking.py`. After: `advice.py`, and the reports, which show them as tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.data.anchors.fit import Fit, measure_fit
from utils.data.check.checking import Check
from utils.data.check.inspection import CheckedImage
from utils.data.image.letterbox import fit_long_side

SMALL_SIDES = (3, 8)  # pixels at --img: hardly to be seen, and hard to find at a stride of 8
SIZE_STEPS = (0, 3, 8, 16, 32, 96, 256)  # pixels; 32 and 96 are the bounds of COCO's areas
PERCENTILES = (0, 5, 50, 95, 100)


class ClassFigures(NamedTuple):
    """A class in figures."""

    name: str
    num_images: tuple[int, ...]  # that show it, of each split
    num_objects: tuple[int, ...]  # of each split
    small: float  # part of its objects with a side below 8 pixels at --img, from 0 to 1


class Spread(NamedTuple):
    """How a quantity is spread over images or objects: its percentiles."""

    name: str
    values: tuple[float, ...]  # at PERCENTILES


class Figures(NamedTuple):
    """A dataset in figures; of images that training uses, and their objects."""

    image_size: int  # --img
    splits: tuple[str, ...]
    classes: tuple[ClassFigures, ...]
    num_images: tuple[int, ...]  # of each split
    num_left_out: tuple[int, ...]
    num_without_objects: tuple[int, ...]
    num_objects: tuple[int, ...]
    image_spreads: tuple[Spread, ...]  # empty without an image
    object_spreads: tuple[Spread, ...]  # empty without an object
    size_steps: tuple[float, ...]  # part of the objects from each of SIZE_STEPS to the next
    small: tuple[float, ...]  # part of the objects with a side below each of SMALL_SIDES
    tenth_side: float  # pixels at --img: a tenth of the objects has a shorter side
    anchors: Fit | None  # of the objects of train; None where there are no anchors, or no objects
    num_anchors: int


class _Objects(NamedTuple):
    """All objects of the images that are used, as arrays of one length T."""

    image: np.ndarray  # int64, the number of the used image
    class_index: np.ndarray
    sizes_wh: np.ndarray  # (T, 2) float64, pixels of the file
    shown_wh: np.ndarray  # (T, 2) float64, pixels at --img


def measure(check: Check, image_size: int, anchors_wh: np.ndarray, threshold: float) -> Figures:
    """Return a dataset's figures.

    Args:
        image_size: --img; images are scaled so that their long side becomes this.
        anchors_wh: (A, 2) pixels; A may be 0.
        threshold: the hyper-parameter anchor_t.
    """
    used = [image for image in check.images if image.is_used]
    objects = _objects_of(used, image_size)
    splits = tuple(check.splits)
    split_of = np.array([splits.index(image.split) for image in used], np.int64)
    in_train = split_of[objects.image] == 0
    fit = None
    if len(anchors_wh) and in_train.any():
        fit = measure_fit(objects.shown_wh[in_train], anchors_wh, threshold)
    shorter = objects.shown_wh.min(axis=1, initial=np.inf)
    return Figures(
        image_size,
        splits,
        _classes(check.dataset.class_names, objects, split_of, len(splits), shorter),
        _counts(splits, check.images),
        _counts(splits, check.left_out),
        _counts(splits, [image for image in used if not len(image.class_index)]),
        tuple(np.bincount(split_of[objects.image], minlength=len(splits)).tolist()),
        _image_spreads(used, image_size),
        _object_spreads(objects),
        _steps(shorter),
        tuple(_part(shorter < side) for side in SMALL_SIDES),
        float(np.quantile(shorter, 0.1)) if len(shorter) else 0.0,
        fit,
        len(anchors_wh),
    )


def _objects_of(used: Sequence[CheckedImage], image_size: int) -> _Objects:
    counts = [len(image.class_index) for image in used]
    image = np.repeat(np.arange(len(used)), counts)
    classes = np.concatenate([np.zeros(0, np.int64), *(x.class_index for x in used)])
    norm = np.concatenate([np.zeros((0, 4), np.float32), *(x.boxes_cxcywh_norm for x in used)])
    sides_wh = np.array([x.size for x in used], np.float64).reshape(-1, 2)[:, ::-1]
    scale = image_size / sides_wh.max(axis=1, initial=1.0)
    # In float32, as labels are and as training compares them with anchors.
    shown_wh = norm[:, 2:] * (sides_wh * scale[:, None]).astype(np.float32)[image]
    return _Objects(image, classes, norm[:, 2:] * sides_wh[image], shown_wh.astype(np.float64))


def _counts(splits: Sequence[str], images: Sequence[CheckedImage]) -> tuple[int, ...]:
    return tuple(sum(image.split == split for image in images) for split in splits)


def _part(chosen: np.ndarray) -> float:
    return float(chosen.mean()) if len(chosen) else 0.0


def _classes(
    names: Sequence[str],
    objects: _Objects,
    split_of: np.ndarray,
    num_splits: int,
    shorter: np.ndarray,
) -> tuple[ClassFigures, ...]:
    shape = len(names), num_splits
    pairs = np.unique(np.stack([objects.image, objects.class_index]), axis=1)
    num_images, num_objects = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    np.add.at(num_images, (pairs[1], split_of[pairs[0]]), 1)
    np.add.at(num_objects, (objects.class_index, split_of[objects.image]), 1)
    is_small = np.bincount(
        objects.class_index, shorter < SMALL_SIDES[-1], minlength=len(names)
    ) / np.maximum(num_objects.sum(axis=1), 1)
    return tuple(
        ClassFigures(name, tuple(images), tuple(counts), small)
        for name, images, counts, small in zip(
            names, num_images.tolist(), num_objects.tolist(), is_small.tolist(), strict=True
        )
    )


def _image_spreads(used: Sequence[CheckedImage], image_size: int) -> tuple[Spread, ...]:
    sizes = [image.size for image in used if image.size]
    if not sizes:
        return ()
    boxes = [fit_long_side(size, image_size, (image_size, image_size)) for size in sizes]
    height, width = np.array(sizes).T
    shown_height, shown_width = np.array([box.resized_size for box in boxes]).T
    return (
        _spread("width", width),
        _spread("height", height),
        _spread("width : height", width / height),
        _spread("width at --img", shown_width),
        _spread("height at --img", shown_height),
        _spread("enlarged by", image_size / np.maximum(height, width)),
        _spread(
            "grey padding, fraction of a square", 1 - shown_width * shown_height / image_size**2
        ),
    )


def _object_spreads(objects: _Objects) -> tuple[Spread, ...]:
    if not len(objects.image):
        return ()
    width, height = objects.sizes_wh.T
    shown_width, shown_height = objects.shown_wh.T
    return (
        _spread("width", width),
        _spread("height", height),
        _spread("width : height", width / np.maximum(height, 1e-9)),
        _spread("width at --img", shown_width),
        _spread("height at --img", shown_height),
        _spread("shorter side at --img", objects.shown_wh.min(axis=1)),
    )


def _spread(name: str, values: np.ndarray) -> Spread:
    return Spread(name, tuple(np.percentile(values, PERCENTILES).tolist()))


def _steps(shorter: np.ndarray) -> tuple[float, ...]:
    found, _ = np.histogram(shorter, [*SIZE_STEPS, np.inf])
    return tuple((found / max(len(shorter), 1)).tolist())
