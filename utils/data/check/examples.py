"""Crops of what was found, and of the objects of each class.

Before: `checking.py`. After: `check_page.py`. Images are decoded only for the crops that are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from utils.boxes import cxcywh_to_xyxy
from utils.data.check.checking import Check
from utils.data.check.inspection import CheckedImage, image_bytes
from utils.data.check.kinds import Finding
from utils.data.check.tables import class_title, shortened
from utils.data.image.being_read import read_as
from utils.data.image.decoding import OtherSizeError, choose_reduction, decode_bytes
from utils.data.image.header import BrokenImageError
from utils.drawing.colours import RGB, class_colour
from utils.page.blocks import Html
from utils.page.crops import LONG_SIDE, Box, CropSheet, View, around, whole

OF_A_KIND = 10  # crops of one kind of finding: two rows on a wide screen
OF_ALL_CLASSES, OF_A_CLASS = 240, 5  # crops at most
FAULTY: RGB = (230, 40, 40)
LONGEST_PATH = 60  # characters below a crop


def finding_crops(check: Check, findings: Sequence[Finding], sheet: CropSheet) -> Iterator[Html]:
    """Yield crops of the first findings of a kind; of a copy, the image that it copies follows."""
    pairs = any(found.other >= 0 for found in findings)
    for found in findings[: OF_A_KIND // 2 if pairs else OF_A_KIND]:
        if found.image < 0:
            continue
        yield _of_finding(check, found, sheet)
        if found.other >= 0:
            other = check.images[found.other]
            yield _whole(check, other, sheet, [f"in {other.split}"])


def class_crops(check: Check, sheet: CropSheet) -> Iterator[list[Html]]:
    """Yield crops of some objects, spread over the dataset, of each class that has any."""
    used = [number for number, image in enumerate(check.images) if len(image.class_index)]
    classes = [check.images[number].class_index for number in used]
    image_of = np.repeat(used, [len(found) for found in classes]).astype(np.int64)
    class_of = np.concatenate([np.zeros(0, np.int64), *classes])
    order = np.argsort(class_of, kind="stable")
    numbers, starts, counts = np.unique(class_of[order], return_index=True, return_counts=True)
    each = int(np.clip(OF_ALL_CLASSES // max(len(numbers), 1), 1, OF_A_CLASS))
    for number, start, total in zip(
        numbers.tolist()[:OF_ALL_CLASSES], starts.tolist(), counts.tolist(), strict=False
    ):
        images = np.unique(image_of[order[start : start + total]])
        chosen = images[np.linspace(0, len(images) - 1, min(each, len(images))).astype(np.int64)]
        yield [_of_class(check, image, number, sheet) for image in chosen.tolist()]


def _of_finding(check: Check, found: Finding, sheet: CropSheet) -> Html:
    image = check.images[found.image]
    details = [shortened(found.text, check)]
    place = found.where.rpartition(": ")[2]
    if place.startswith(("line ", "object ")):
        details.insert(0, place)
    if image.size is None:
        return sheet.without_image(_short(image), details)
    left, top, right, bottom = found.box_xyxy_norm or (np.nan,) * 4
    if not (left < 1 and top < 1 and right > 0 and bottom > 0):  # NaN too
        return _whole(check, image, sheet, details)
    height, width = image.size
    box = [left * width, top * height, right * width, bottom * height]
    boxes = [Box(box, FAULTY, is_dashed=True), *_boxes(check, image, named=False)]
    return _crop(image, boxes, sheet, _short(image), details, around(box, image.size))


def _of_class(check: Check, number: int, class_index: int, sheet: CropSheet) -> Html:
    """Return a crop around the largest object of a class on an image, with its others of it."""
    image = check.images[number]
    boxes = [
        box
        for box, index in zip(_boxes(check, image, named=False), image.class_index, strict=True)
        if index == class_index
    ]
    largest = max(boxes, key=_area)
    assert image.size
    title = class_title(class_index, check.dataset.class_names[class_index])
    return _crop(image, boxes, sheet, title, [_short(image)], around(largest.box_xyxy, image.size))


def _area(box: Box) -> float:
    left, top, right, bottom = box.box_xyxy
    return (right - left) * (bottom - top)


def _whole(check: Check, image: CheckedImage, sheet: CropSheet, details: Sequence[str]) -> Html:
    if image.size is None:
        return sheet.without_image(_short(image), details)
    boxes = _boxes(check, image, named=True)
    return _crop(image, boxes, sheet, _short(image), details, whole(image.size))


def _boxes(check: Check, image: CheckedImage, named: bool) -> list[Box]:
    """Return the boxes of the objects that are used, pixels."""
    assert image.size
    height, width = image.size
    pixels = cxcywh_to_xyxy(image.boxes_cxcywh_norm * np.array([width, height, width, height]))
    names = check.dataset.class_names
    return [
        Box(box, class_colour(index), names[index] if named else "")
        for box, index in zip(pixels.tolist(), image.class_index.tolist(), strict=True)
    ]


def _crop(
    image: CheckedImage,
    boxes: Sequence[Box],
    sheet: CropSheet,
    title: str,
    details: Sequence[str],
    view: View,
) -> Html:
    """Return a crop; the image is decoded no larger than it is shown."""
    assert image.size
    side = max(view.right - view.left, view.bottom - view.top)
    wanted = max(LONG_SIDE * max(image.size) // side, 1)
    reduction = choose_reduction(image.size, wanted)
    try:
        decode = partial(_decoded, image, reduction)
        pixels = read_as(image.source.path, decode)
    except (BrokenImageError, OtherSizeError):
        return sheet.without_image(title, details)
    smaller = [box._replace(box_xyxy=[x / reduction for x in box.box_xyxy]) for box in boxes]
    shown = View(*(round(edge / reduction) for edge in view))
    return sheet.crop(pixels[..., ::-1], smaller, title, details, shown)


def _decoded(image: CheckedImage, reduction: int) -> np.ndarray:
    assert image.size
    return decode_bytes(image_bytes(image.source), image.size, reduction)


def _short(image: CheckedImage) -> str:
    """Return the end of an image's path, which tells images apart."""
    name = "/".join(image.source.path.parts[-2:])
    return name if len(name) <= LONGEST_PATH else f"...{name[-LONGEST_PATH:]}"
