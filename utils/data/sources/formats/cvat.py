"""CVAT for images 1.1: one XML file, with the labels and an element for each image.

Before: `table.py`. After: `annotations.py`.

Source: docs.cvat.ai/docs/dataset_management/formats/format-cvat, and the page "XML annotation
format" there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import numpy as np

from utils.data.sources.formats.annotations import UNKNOWN, Annotations, AnnotationsBuilder
from utils.data.sources.formats.coco_masks import mask_outline
from utils.data.sources.formats.folders import find_files, split_of
from utils.data.sources.formats.format import AnnotatedFolder, Format
from utils.data.sources.formats.image_names import ImageNames, listed_in
from utils.data.sources.formats.outlines import box_outline, ellipse_outline, turned, within
from utils.errors import DatasetError, brief
from utils.files.regular import open_regular
from utils.files.xml import Element, stream_xml

NAME = "CVAT for images 1.1"
UNDIVIDED = "default"  # the subset of tasks that are in none
_ROOT = re.compile(rb"<annotations[\s/>]")  # Pascal VOC's is <annotation>
_HEAD_BYTES = 1 << 12
_LEFT_OUT = {
    "polyline": "polylines",
    "points": "points",
    "cuboid": "cuboids",
    "skeleton": "skeletons",
    "tag": "tags of images",
}
_MOST = 1 << 31  # no side is so long


def accepts(path: Path) -> bool:
    """Return whether an XML file begins as CVAT's do, for images or for video."""
    try:
        with open_regular(path) as file:
            return _ROOT.search(file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False


def find(path: Path) -> Mapping[str, list[AnnotatedFolder]]:
    """Return the splits of a folder, or of one XML file: those that its subsets are named for."""
    found = find_files(path, NAME, ".xml", accepts)
    return _by_subset(*found[""]) if list(found) == [""] else found


def _by_subset(folder: AnnotatedFolder) -> Mapping[str, list[AnnotatedFolder]]:
    try:
        subsets = sorted({image.get("subset", "") for image in _elements(folder, "image")})
    except DatasetError:
        return {"": [folder]}  # its reader tells
    if not any(map(split_of, subsets)):
        return {"": [folder]}
    splits: dict[str, list[AnnotatedFolder]] = {}
    for subset in subsets:
        splits.setdefault(split_of(subset), []).append(folder._replace(subset=subset))
    return splits


def read(folder: AnnotatedFolder) -> Annotations:
    """Read the images of a file, or of a subset of it.

    Polylines, points, cuboids, skeletons and tags are left out.

    Raises:
        DatasetError: a file that cannot be read, has no image, or is of a video.
    """
    builder = AnnotationsBuilder()
    images = ImageNames(folder.images)
    is_listed = listed_in(folder.image_list, folder.images)
    num_images = 0
    for element in _elements(folder, "meta", "image", "track"):
        if element.tag == "track":
            raise DatasetError(
                f"{folder.annotations}: is an export for video, of tracks; export the task from "
                f"CVAT again, as '{NAME}' and with its images"
            )
        if element.tag == "meta":
            builder = AnnotationsBuilder(_class_names(element))
            continue
        num_images += 1
        if folder.subset in (None, element.get("subset", "")):
            path, trouble = images.find(_names_of(element, folder.subset is None))
            if is_listed(path):
                _add_image(builder, path, trouble, element)
    if not num_images:
        raise DatasetError(f"{folder.annotations}: has no element <image>")
    return builder.build()


def _elements(folder: AnnotatedFolder, *names: str) -> Iterator[Element]:
    try:
        with open_regular(folder.annotations) as file:
            yield from stream_xml(file, names)
    except OSError as error:
        raise DatasetError(f"{folder.annotations}: {error.strerror}") from error
    except ValueError as error:
        raise DatasetError(f"{folder.annotations}: {error}") from error


def _class_names(meta: Element) -> tuple[str, ...]:
    """Return the labels of things that have a box, in CVAT's order."""
    labels = [
        (label.findtext("name") or "").strip()
        for label in meta.iter("label")
        if label.findtext("type") not in _LEFT_OUT and label.find("parent") is None
    ]
    return tuple(dict.fromkeys(filter(None, labels)))


def _names_of(image: Element, is_whole: bool) -> Iterator[PurePosixPath]:
    """Yield what an image may be called in the folder of images: below its subset's, or not.

    Args:
        is_whole: the images of all subsets are read, so none can be one of another split.
    """
    name = image.get("name", "").replace("\\", "/").replace("\0", "")
    subset = image.get("subset", "")
    yield PurePosixPath(subset, name)
    if is_whole and subset == UNDIVIDED:
        yield PurePosixPath(name)


def _add_image(builder: AnnotationsBuilder, path: Path, trouble: str, image: Element) -> None:
    called = f"image {brief(image.get('id'))}, {brief(image.get('name'))}"
    try:
        size = _size_of(image)
    except ValueError as error:
        size, broken = UNKNOWN, str(error)
    else:
        broken = ""
    builder.image(path, size, called, trouble)
    if broken:
        builder.refuse(broken)
    if trouble or broken:
        return
    for shape in image:
        try:
            _add_shape(builder, shape, size)
        except ValueError as error:
            builder.refuse(f"image {brief(image.get('id'))}, {shape.tag}: {error}")


def _size_of(image: Element) -> tuple[int, int]:
    if image.get("width") is None and image.get("height") is None:
        return UNKNOWN
    height, width = _integers(image, "height", "width")
    if not (height and width):
        raise ValueError(f"its size is {width} x {height} px")
    return height, width


def _add_shape(builder: AnnotationsBuilder, shape: Element, size: tuple[int, int]) -> None:
    if shape.tag in _LEFT_OUT:
        builder.leave_out(_LEFT_OUT[shape.tag])
        return
    if shape.tag not in ("box", "polygon", "ellipse", "mask"):
        builder.leave_out("shapes of other kinds")
        return
    if not (label := (shape.get("label") or "").strip()):
        raise ValueError("has no label")
    if shape.tag == "box" and not _degrees(shape):
        left, top, right, bottom = _numbers(shape, "xtl", "ytl", "xbr", "ybr")
        builder.object(label, (left, top, right, bottom))
    elif len(outline := _outline_of(shape, size)) < 3:
        builder.leave_out("shapes outside the image, or of fewer than 3 points")
    else:
        builder.outline(label, outline)


def _outline_of(shape: Element, size: tuple[int, int]) -> np.ndarray:
    """Return the outline of a polygon, a mask, an ellipse or a turned box, (K, 2) in pixels."""
    if shape.tag == "polygon":
        return _points(shape)
    if shape.tag == "mask":
        return _outline_of_mask(shape)
    if shape.tag == "ellipse":
        x, y, radius_x, radius_y = _numbers(shape, "cx", "cy", "rx", "ry")
        outline = ellipse_outline((x, y), (radius_x, radius_y))
    else:
        left, top, right, bottom = _numbers(shape, "xtl", "ytl", "xbr", "ybr")
        outline = box_outline(left, top, right - left, bottom - top)
        x, y = (left + right) / 2, (top + bottom) / 2
    outline = turned(outline, (x, y), _degrees(shape))
    return outline if size == UNKNOWN else within(outline, size)


def _points(shape: Element) -> np.ndarray:
    text = shape.get("points", "")
    try:
        points = np.array([pair.split(",") for pair in text.split(";")], np.float64)
    except ValueError:
        points = np.array(np.nan)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise ValueError(f"points are {brief(text)}; 'x,y;x,y;...' is needed")
    return points


def _outline_of_mask(mask: Element) -> np.ndarray:
    """Return the outline of a mask, of runs of background and object by turns, row by row."""
    left, top, width, height = _integers(mask, "left", "top", "width", "height")
    try:
        runs = [int(run) for run in mask.get("rle", "").split(",")]
    except ValueError as error:
        raise ValueError(f"rle is {brief(mask.get('rle'))}") from error
    # COCO's runs go down the columns: these are of the mask with x and y exchanged.
    outline = mask_outline({"size": [width, height], "counts": runs})[:, ::-1]
    if not len(outline):
        raise ValueError("is empty")
    return outline + (left, top)


def _degrees(shape: Element) -> float:
    return _numbers(shape, "rotation")[0] if shape.get("rotation") else 0.0


def _numbers(element: Element, *names: str) -> list[float]:
    found = []
    for name in names:
        try:
            number = float(element.get(name, ""))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{name} is {brief(element.get(name))}; a number is needed")
        found.append(number)
    return found


def _integers(element: Element, *names: str) -> list[int]:
    """Return whole numbers from 0, which may be written as 5.0."""
    found = _numbers(element, *names)
    for name, number in zip(names, found, strict=True):
        if not (number.is_integer() and 0 <= number < _MOST):
            raise ValueError(f"{name} is {number:g}; a whole number from 0 is needed")
    return list(map(int, found))


CVAT = Format(NAME, accepts, find, read)
