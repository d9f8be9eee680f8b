"""Transforms of the package Albumentations as a part of the augmentation; it is optional."""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import cv2
import numpy as np

from duet.utils.data.augment.geometry import (
    MIN_AREA_RATIO,
    MIN_SIDE,
    OUTLINE_MARGIN,
    boxes_within,
    warp_polygons,
    worth_keeping,
)
from duet.utils.data.image.decoding import LabelledImage, Objects
from duet.utils.errors import UserError, brief
from duet.utils.optional import import_optional
from duet.utils.polygons import Polygons, starts_of, without_outlines
from duet.utils.transform_list import FLAG, parse_transforms

TRIALS = 4  # seeds, before training


def require_transforms(text: str, size: tuple[int, int]) -> None:
    """Try all transforms a few times on an image of (height, width).

    Raises:
        UserError: the package is absent or does not take the arguments; the result has another
            size or type, or is another one for the same seed.
    """
    if not text:
        return
    _build(text)
    surely = {name: {**given, "p": 1.0} for name, given in parse_transforms(text).items()}
    height, width = size
    shades = np.arange(height * width * 3, dtype=np.uint32) % 251
    box = np.array([[0.25, 0.25, 0.75, 0.75]]) * [width, height, width, height]
    item = LabelledImage(shades.astype(np.uint8).reshape(height, width, 3), np.zeros(1, int), box)
    for seed in range(TRIALS):
        first, second = (transform(item, json.dumps(surely), seed) for _ in range(2))
        if not all(map(np.array_equal, first[:3], second[:3])):
            raise UserError(
                f"{FLAG}: these transforms do not follow their seed, so that no run could be "
                f"repeated: {', '.join(surely)}; leave out the newest of them"
            )


def transform(
    item: LabelledImage, text: str, seed: int, fits_outlines: bool = False
) -> LabelledImage:
    """Apply transforms, all of whose draws are a function of the seed.

    Boxes of spatial ones are clipped, and dropped like `worth_keeping` drops them. The corners
    of polygons move with them.

    Args:
        item: BGR; the transforms see RGB, as the package asks for.
        text: of `transform_list.py`.
        seed: from 0 to below 2**32.
        fits_outlines: the box of a moved polygon becomes the one around what is seen of it; the
            package moves corners of boxes, which is looser.

    Raises:
        UserError: the result has another size or type.
    """
    pipeline = _build(text)
    # One state for all: with `set_random_seed` each would begin with the same draw.
    pipeline.compose.set_random_state(np.random.default_rng(seed), random.Random(seed))
    given = {"image": cv2.cvtColor(item.image, cv2.COLOR_BGR2RGB)}
    if pipeline.is_spatial:
        given |= {"bboxes": item.boxes_xyxy, "row": np.arange(len(item.boxes_xyxy))}
        outlines = item.polygons or without_outlines(len(item.class_index))
        owner = np.repeat(np.arange(len(outlines)), outlines.num_points)
        given |= {"keypoints": outlines.points_xy, "owner": owner}
    try:
        found = pipeline.compose(**given)
    except (TypeError, ValueError, cv2.error) as error:
        height, width = item.size
        raise UserError(
            f"{FLAG}: {text} fails on an image of {width}x{height}: {_reason(error)}"
        ) from error
    image = found["image"]
    if image.shape != item.image.shape or image.dtype != np.uint8:
        raise UserError(
            f"{FLAG}: {text} makes {image.shape[1]}x{image.shape[0]} {image.dtype} of a training "
            f"image of {item.size[1]}x{item.size[0]} uint8; add Resize, or leave out what "
            "changes the size"
        )
    image = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    if not pipeline.is_spatial:
        return item._replace(image=image)
    boxes: np.ndarray = np.asarray(found["bboxes"], np.float64).reshape(-1, 4)
    rows = np.asarray(found["row"], np.int64)
    class_index, polygons = item.class_index[rows], item.polygons
    if polygons is None:
        return LabelledImage(image, class_index, boxes)
    had_points = polygons.num_points[rows] > 0
    polygons = _moved(found, len(polygons), item.size).select(rows)
    keep = np.ones(len(rows), bool)
    if fits_outlines:
        boxes = np.where(had_points[:, None], boxes_within(polygons, item.size), boxes)
        keep = ~had_points | worth_keeping(boxes, boxes)  # else nothing of it is seen
    return LabelledImage(image, *Objects(class_index, boxes, polygons).select(keep))


def _moved(found: Mapping[str, Any], num_objects: int, size: tuple[int, int]) -> Polygons:
    """Return the polygons of moved points, cut where those of any other augmentation are."""
    points = np.asarray(found["keypoints"], np.float64).reshape(-1, 2)
    owner = np.asarray(found["owner"], np.int64)
    is_number = np.isfinite(points).all(axis=1)
    num_points = np.bincount(owner[is_number], minlength=num_objects)
    moved = Polygons(points[is_number], starts_of(num_points))
    return warp_polygons(moved, np.eye(3), size, OUTLINE_MARGIN)


class _Pipeline(NamedTuple):
    compose: Any  # albumentations.Compose
    is_spatial: bool  # boxes and outlines move, too


@lru_cache(maxsize=2)
def _build(text: str) -> _Pipeline:
    # Without torch: a loader's process would take a second and 180 MB more.
    with _hidden("torch"):
        package = import_optional("albumentations", FLAG)
    document = parse_transforms(text)
    parts = [_make(package, name, given) for name, given in document.items()]
    is_spatial = any(isinstance(part, package.DualTransform) for part in parts)
    boxes = package.BboxParams(
        format="pascal_voc",
        label_fields=["row"],
        min_width=MIN_SIDE,
        min_height=MIN_SIDE,
        min_visibility=MIN_AREA_RATIO,
        clip=True,
    )
    points = package.KeypointParams(format="xy", label_fields=["owner"], remove_invisible=False)
    compose = package.Compose(
        parts,
        bbox_params=boxes if is_spatial else None,
        keypoint_params=points if is_spatial else None,
    )
    return _Pipeline(compose, is_spatial)


def _make(package: ModuleType, name: str, given: Mapping[str, Any]) -> Any:
    """Build a transform; its complaints about arguments are warnings or errors of many lines."""
    if not hasattr(package, name):
        raise UserError(f"{FLAG}: the installed {package.__name__} has no {name}; leave it out")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return getattr(package, name)(**given)
    except (TypeError, ValueError, Warning) as error:
        raise UserError(
            f"{FLAG}: {name}: {brief(dict(given))} is not accepted: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """Return what an error says, in one line; one of pydantic has a part for each argument."""
    cause = error.__cause__
    if cause is None or not hasattr(cause, "errors"):
        return str(error)
    first = cause.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Let imports find no package of this name, unless it is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # as Python documents it
    try:
        yield
    finally:
        del sys.modules[package]
