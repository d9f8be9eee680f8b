"""CVAT for images 1.1: one XML file, with the labels and an element for each image.

Source: docs.cvat.ai/docs/dataset_management/formats/format-cvat, and the page "XML annotation
format" there.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from duet.utils.data.formats.outlines import ellipse_outline, turned, within
from duet.utils.data.masks.runs import read_runs, whole_outline
from duet.utils.data.sources.formats.format import (
    UNKNOWN,
    AnnotatedFolder,
    FileNotes,
    Format,
    ImageLabels,
    Splits,
    read_head,
    read_numbers,
    read_points,
)
from duet.utils.data.sources.formats.names import FileNames, find_files, listed_in, split_of
from duet.utils.errors import brief
from duet.utils.files.regular import open_regular
from duet.utils.files.xml_files import Element, stream_xml
from duet.utils.geometry.boxes import corners_of

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


def accepts(path: Path) -> bool:
    return _ROOT.search(read_head(path, _HEAD_BYTES)) is not None


def find(path: Path) -> Splits:
    """Return the splits of a folder, or of one XML file: those that its subsets are named for."""
    found = find_files(path, NAME, ".xml", accepts)
    if list(found) != [""]:
        return found
    (folder,) = found[""]
    try:
        subsets = sorted({image.get("subset", "") for image in _elements(folder, "image")})
    except (OSError, ValueError):
        return found  # its reader reports it
    if not any(map(split_of, subsets)):
        return found
    splits: dict[str, list[AnnotatedFolder]] = {}
    for subset in subsets:
        splits.setdefault(split_of(subset), []).append(folder._replace(subset=subset))
    return splits


def read(folder: AnnotatedFolder, notes: FileNotes) -> Iterator[ImageLabels]:
    """Read the images of a file, or of a subset of it.

    OSError, ValueError: it cannot be read, has no image, or is of a video.
    """
    images = FileNames(folder.images)
    is_listed = listed_in(folder.image_list, images)
    num_images = 0
    for element in _elements(folder, "meta", "image", "track"):
        if element.tag == "track":
            raise ValueError(
                "is an export for video, of tracks; export the task from CVAT again, as "
                f"'{NAME}' and with its images"
            )
        if element.tag == "meta":
            notes.class_names = _class_names(element)
            continue
        num_images += 1
        if folder.subset in (None, element.get("subset", "")):
            path, trouble = images.find(_names_of(element, folder.subset is None))
            if is_listed(path):
                called = f"image {brief(element.get('id'))}, {brief(element.get('name'))}"
                labels = ImageLabels(path, called=called, broken=trouble)
                if not trouble:
                    _add_shapes(labels, element)
                yield labels
    if not num_images:
        raise ValueError("has no element <image>")


def _elements(folder: AnnotatedFolder, *names: str) -> Iterator[Element]:
    with open_regular(folder.annotations) as file:
        yield from stream_xml(file, names)


def _class_names(meta: Element) -> list[str]:
    """Return the labels of things that have a box, in CVAT's order."""
    labels = [
        (label.findtext("name") or "").strip()
        for label in meta.iter("label")
        if label.findtext("type") not in _LEFT_OUT and label.find("parent") is None
    ]
    return list(dict.fromkeys(filter(None, labels)))


def _names_of(image: Element, is_whole: bool) -> Iterator[str]:
    """Yield possible names of an image in the folder of images: below its subset's, or not.

    is_whole: the images of all subsets are read, so none can be one of another split.
    """
    name = image.get("name", "").replace("\0", "")
    subset = image.get("subset", "")
    yield f"{subset}/{name}"
    if is_whole and subset == UNDIVIDED:
        yield name


def _add_shapes(labels: ImageLabels, image: Element) -> None:
    called = f"image {brief(image.get('id'))}"
    if image.get("width") is not None or image.get("height") is not None:
        try:
            height, width = _integers(image, "height", "width")
        except ValueError as error:
            return labels.refuse(f"{called}: {error}")
        if not (height and width):
            return labels.refuse(f"{called}: its size is {width} x {height} px")
        labels.size = height, width
    for shape in image:
        try:
            _add_shape(labels, shape)
        except ValueError as error:
            labels.refuse(f"{called}, {shape.tag}: {error}")


def _add_shape(labels: ImageLabels, shape: Element) -> None:
    if shape.tag not in ("box", "polygon", "ellipse", "mask"):
        labels.left_out.append(_LEFT_OUT.get(shape.tag, "shapes of other kinds"))
        return
    if not (label := (shape.get("label") or "").strip()):
        raise ValueError("has no label")
    if shape.tag == "box" and not _degrees(shape):
        left, top, right, bottom = read_numbers(shape, "xtl", "ytl", "xbr", "ybr")
        labels.add(label, (left, top, right, bottom))
    elif len(outline := _outline_of(shape, labels.size)) < 3:
        labels.left_out.append("shapes outside the image, or of fewer than 3 points")
    else:
        labels.add_outline(label, outline)


def _outline_of(shape: Element, size: tuple[int, int]) -> np.ndarray:
    if shape.tag == "polygon":
        text = shape.get("points", "")
        return read_points([pair.split(",") for pair in text.split(";")], text)
    if shape.tag == "mask":
        return _outline_of_mask(shape)
    if shape.tag == "ellipse":
        x, y, radius_x, radius_y = read_numbers(shape, "cx", "cy", "rx", "ry")
        outline = ellipse_outline((x, y), (radius_x, radius_y))
    else:
        left, top, right, bottom = read_numbers(shape, "xtl", "ytl", "xbr", "ybr")
        outline = corners_of(np.array([left, top, right, bottom]))
        x, y = (left + right) / 2, (top + bottom) / 2
    outline = turned(outline, (x, y), _degrees(shape))
    return outline if size == UNKNOWN else within(outline, size)


def _outline_of_mask(mask: Element) -> np.ndarray:
    left, top, width, height = _integers(mask, "left", "top", "width", "height")
    try:
        counts = [int(run) for run in mask.get("rle", "").split(",")]
    except ValueError as error:
        raise ValueError(f"rle is {brief(mask.get('rle'))}") from error
    # COCO's runs go down the columns: these are of the mask with x and y exchanged.
    outline = whole_outline(*read_runs({"size": [width, height], "counts": counts}))[:, ::-1]
    if not len(outline):
        raise ValueError("is empty")
    return outline + (left, top)


def _degrees(shape: Element) -> float:
    return read_numbers(shape, "rotation")[0] if shape.get("rotation") else 0.0


def _integers(element: Element, *names: str) -> list[int]:
    """Return whole numbers from 0, which may be written as 5.0."""
    found = read_numbers(element, *names)
    for name, number in zip(names, found, strict=True):
        if not (number.is_integer() and number >= 0):
            raise ValueError(f"{name} is {number:g}; accepted: a whole number from 0")
    return list(map(int, found))


CVAT = Format(NAME, accepts, find, read)
