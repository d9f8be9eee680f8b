"""Transforms of --albumentations as a part of the augmentation: four, which OpenCV does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import cv2
import numpy as np

from duet.utils.data.image.decoding import LabelledImage
from duet.utils.data.randomness import transform_generator
from duet.utils.errors import UserError, brief
from duet.utils.transform_list import FLAG, parse_transforms


def require_transforms(text: str) -> None:
    """Raise UserError for a transform that there is not, or an argument that it does not take."""
    if text:
        _filters_of(text)


def transform(item: LabelledImage, text: str, seed: int) -> LabelledImage:
    """Apply transforms, all of whose draws are a function of the seed.

    Args:
        item: BGR.
        text: transforms as text, see `transform_list.py`.
        seed: from 0 to below 2**32.
    """
    return item._replace(image=_filter(item.image, _filters_of(text), seed))


@lru_cache(maxsize=2)
def _filters_of(text: str) -> tuple[_Filter, ...]:
    return tuple(_make_filter(name, given) for name, given in parse_transforms(text).items())


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
    if name not in FILTERS:
        known = ", ".join(FILTERS)
        raise UserError(f"{FLAG}: {brief(name)} is not supported; accepted: {known}")
    apply, others = FILTERS[name]
    taken = {key: ARGUMENTS[key] for key in ("p", *others)}
    found = {key: _numbers(key, given.get(key, default)) for key, (default, *_) in taken.items()}
    if not (given.keys() <= taken.keys() and all(found.values())):
        limits = "; ".join(f"{key}: {value} ({a} to {b})" for key, (value, a, b) in taken.items())
        raise UserError(f"{FLAG}: {name}: {brief(given)}; accepted: {limits}")
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
