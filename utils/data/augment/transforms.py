"""Transforms of --albumentations as a part of the augmentation.

Blur, MedianBlur, ToGray and CLAHE are done with OpenCV. A list that names any other transform is
left to the package Albumentations as a whole; the package is optional.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
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
from duet.utils.data.randomness import transform_generator
from duet.utils.errors import UserError, brief
from duet.utils.optional import import_optional
from duet.utils.polygons import Polygons, starts_of, without_outlines
from duet.utils.transform_list import FLAG, parse_transforms

TRIALS = 4  # seeds, before training


def require_transforms(text: str, size: tuple[int, int]) -> None:
    """Try all transforms a few times on an image of (height, width).

    Raises:
        UserError: an argument is not accepted, or the package is needed and absent; the result has
            another size or type, or is another one for the same seed.
    """
    if not text:
        return
    _pipeline_of(text)
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
        item: BGR.
        text: of `transform_list.py`.
        seed: from 0 to below 2**32.
        fits_outlines: the box of a moved polygon becomes the one around what is seen of it; the
            package moves corners of boxes, which is looser.

    Raises:
        UserError: the result has another size or type.
    """
    pipeline = _pipeline_of(text)
    if isinstance(pipeline, _Pipeline):
        return _through_package(item, pipeline, seed, fits_outlines)
    return item._replace(image=_filter(item.image, pipeline, seed))


@lru_cache(maxsize=2)
def _pipeline_of(text: str) -> tuple[_Filter, ...] | _Pipeline:
    document = parse_transforms(text)
    others = [name for name in document if name not in FILTERS]
    if others:
        return _build(text, document, others)
    return tuple(_make_filter(name, given) for name, given in document.items())


class _Filter(NamedTuple):
    probability: float
    apply: Callable[[np.ndarray, float], np.ndarray]  # with a draw from 0 to below 1


def _filter(image: np.ndarray, filters: tuple[_Filter, ...], seed: int) -> np.ndarray:
    """Apply filters in turn. Each has two draws, used or not: to change one leaves the others."""
    draws = transform_generator(seed).random((len(filters), 2)).tolist()
    for (probability, apply), (chance, draw) in zip(filters, draws, strict=True):
        if chance < probability:
            image = apply(image, draw)
    return image


def _blur(image: np.ndarray, draw: float, blur_limit: list[int]) -> np.ndarray:
    side = _odd(draw, blur_limit)
    return cv2.blur(image, (side, side))


def _median(image: np.ndarray, draw: float, blur_limit: list[int]) -> np.ndarray:
    return cv2.medianBlur(image, _odd(draw, blur_limit))


def _odd(draw: float, limits: list[int]) -> int:
    """Return one of the odd numbers from the lower to the upper limit, all equally likely."""
    numbers = range(limits[0] | 1, limits[1] + 1, 2)
    return numbers[int(draw * len(numbers))]


def _grey(image: np.ndarray, draw: float) -> np.ndarray:
    return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)


def _equalize(
    image: np.ndarray, draw: float, clip_limit: list[float], tile_grid_size: list[int]
) -> np.ndarray:
    """Equalize the histogram of L in each tile of the CIELAB image.

    Source: Zuiderveld 1994, Contrast limited adaptive histogram equalization.
    """
    low, high = clip_limit
    rows, columns = tile_grid_size
    clahe = cv2.createCLAHE(low + draw * (high - low), (columns, rows))
    lightness, *colours = cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2LAB))
    return cv2.cvtColor(cv2.merge((clahe.apply(lightness), *colours)), cv2.COLOR_LAB2BGR)


FILTERS: dict[str, tuple[Callable[..., np.ndarray], tuple[str, ...]]] = {
    "Blur": (_blur, ("blur_limit",)),
    "MedianBlur": (_median, ("blur_limit",)),
    "ToGray": (_grey, ()),
    "CLAHE": (_equalize, ("clip_limit", "tile_grid_size")),
}
# The default as the package documents it, the lowest and the highest number; the highest are ours.
ARGUMENTS = {
    "p": (0.5, 0, 1),
    "blur_limit": ([3, 7], 3, 255),
    "clip_limit": ([1.0, 4.0], 1, 1000),
    "tile_grid_size": ([8, 8], 1, 255),
}
RANGES = "blur_limit", "clip_limit"  # one number is the upper end; the lower one is the lowest


def _make_filter(name: str, given: Mapping[str, Any]) -> _Filter:
    apply, others = FILTERS[name]
    taken = {key: ARGUMENTS[key] for key in ("p", *others)}
    found = {key: _numbers(key, given.get(key, default)) for key, (default, *_) in taken.items()}
    if not (given.keys() <= taken.keys() and all(found.values())):
        limits = "; ".join(f"{key}: {value} ({a} to {b})" for key, (value, a, b) in taken.items())
        raise UserError(f"{FLAG}: {name}: {brief(given)} is not accepted; such are: {limits}")
    [probability] = found.pop("p")
    return _Filter(probability, partial(apply, **found))


def _numbers(key: str, value: Any) -> list[Any]:
    """Return the one or two numbers of an argument; none if they are not like its default."""
    default, lowest, highest = ARGUMENTS[key]
    if key in RANGES and not isinstance(value, list):
        value = [lowest, value]
    if not isinstance(default, list):
        value, default = [value], [default]
    kinds = int, type(default[0])
    if not (
        isinstance(value, list)
        and len(value) == len(default)
        and all(type(number) in kinds and lowest <= number <= highest for number in value)
    ):
        return []
    first = value[0] | 1 if key == "blur_limit" else value[0]  # the lowest odd size
    return [] if key in RANGES and first > value[1] else value


class _Pipeline(NamedTuple):
    compose: Any  # albumentations.Compose
    is_spatial: bool  # boxes and outlines move, too
    text: str  # for messages


def _build(text: str, document: Mapping[str, Any], others: list[str]) -> _Pipeline:
    package = import_optional(
        "albumentations", f"{FLAG}: {brief(others)}, other than {', '.join(FILTERS)},"
    )
    parts = [_make(package, name, given) for name, given in document.items()]
    is_spatial = any(isinstance(part, package.DualTransform) for part in parts)
    spatial = {
        "bbox_params": package.BboxParams(
            format="pascal_voc", label_fields=["row"], clip=True,
            min_width=MIN_SIDE, min_height=MIN_SIDE, min_visibility=MIN_AREA_RATIO,
        ),
        "keypoint_params": package.KeypointParams(
            format="xy", label_fields=["owner"], remove_invisible=False
        ),
    }  # fmt: skip
    return _Pipeline(package.Compose(parts, **(spatial if is_spatial else {})), is_spatial, text)


def _make(package: Any, name: str, given: Mapping[str, Any]) -> Any:
    """Build a transform; its complaints about arguments are warnings or errors of many lines."""
    made = getattr(package, name, None)
    if not (isinstance(made, type) and issubclass(made, package.BasicTransform)):
        raise UserError(f"{FLAG}: {name} is no transform of {package.__name__}; leave it out")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return made(**given)
    except (TypeError, ValueError, Warning) as error:
        why = _in_one_line(error)
        raise UserError(f"{FLAG}: {name}: {brief(given)} is not accepted: {why}") from error


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _through_package(
    item: LabelledImage, pipeline: _Pipeline, seed: int, fits_outlines: bool
) -> LabelledImage:
    """Apply the package's transforms, which see RGB and move boxes and the points of outlines."""
    # One state for all: with `set_random_seed` each would begin with the same draw.
    pipeline.compose.set_random_state(np.random.default_rng(seed), random.Random(seed))
    given = {"image": cv2.cvtColor(item.image, cv2.COLOR_BGR2RGB)}
    if pipeline.is_spatial:
        given |= {"bboxes": item.boxes_xyxy, "row": np.arange(len(item.boxes_xyxy))}
        outlines = item.polygons or without_outlines(len(item.class_index))
        owner = np.repeat(np.arange(len(outlines)), outlines.num_points)
        given |= {"keypoints": outlines.points_xy, "owner": owner}
    size = "{1}x{0}".format(*item.size)
    try:
        found = pipeline.compose(**given)
    except Exception as error:  # of any kind: the package is not ours
        why = _in_one_line(error)
        raise UserError(f"{FLAG}: {pipeline.text} fails on an image of {size}: {why}") from error
    image = found["image"]
    if image.shape != item.image.shape or image.dtype != np.uint8:
        raise UserError(
            f"{FLAG}: {pipeline.text} makes {image.shape[1]}x{image.shape[0]} {image.dtype} of a "
            f"training image of {size} uint8; add Resize, or leave out what changes the size"
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
