"""Pascal VOC: an XML file for each image, and lists of the images of each split.

Source: the development kit of VOC2012, host.robots.ox.ac.uk/pascal/VOC, "Annotation"; files as
labelImg, Roboflow and CVAT write them.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from duet.utils.data.sources.formats.file_per_image import FilePerImage, Parsed
from duet.utils.data.sources.formats.format import (
    NO_OUTLINE,
    UNKNOWN,
    AnnotatedFolder,
    Format,
    ImageLabels,
    Splits,
    read_head,
    read_number,
)
from duet.utils.data.sources.formats.names import split_of
from duet.utils.errors import DatasetError
from duet.utils.files.xml_files import Element, read_xml

_ROOT = re.compile(rb"<annotation[\s/>]")
_HEAD_BYTES = 1 << 12
_YEAR = re.compile(r"VOC20\d\d")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
# The original data count pixels from 1, and a box has its last pixel too. What else writes this
# format puts corners between pixels, from 0 on: labelImg, CVAT, Roboflow, and bccd's files, whose
# boxes reach 640 in an image of 640 pixels.
_COUNTS_FROM_ONE = "The VOC"  # "The VOC2007 Database"


def find(path: Path) -> Splits:
    """Return the splits of a folder; of several years, as VOC2007 and VOC2012, all together."""
    if not path.is_dir():
        return {}
    splits: dict[str, list[AnnotatedFolder]] = {}
    kits = chain(path.iterdir(), path.glob("VOCdevkit/*"))
    years = sorted(kit for kit in kits if _YEAR.fullmatch(kit.name) and kit.is_dir())
    for folder in years or [path]:
        for split, parts in _splits(folder).items():
            splits.setdefault(split, []).extend(parts)
    if len(splits) > 1 and "" in splits:  # one year has lists, another none
        splits.setdefault("train", []).extend(splits.pop(""))
    return splits


def _splits(root: Path) -> Splits:
    splits = _FILES.find(root)
    if set(splits) != {""}:
        return splits
    (whole,) = splits[""]
    listed = {split: [whole._replace(image_list=path)] for split, path in _lists(root)}
    return listed or splits


def _lists(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the list of each split that has one; trainval.txt where it alone is not for testing.

    DatasetError: several are for one split, and none has its name.
    """
    lists = {
        path.stem: path
        for folder in ("ImageSets", "ImageSets/Main")
        for path in sorted((root / folder).glob("*.txt"))
        if path.is_file() and path.stat().st_size
    }
    found: dict[str, list[Path]] = {}
    for name, path in lists.items():
        found.setdefault(split_of(name), []).append(path)
    if "trainval" in lists and not {"train", "val"} & set(found):
        yield "train", lists["trainval"]
    found.pop("", None)  # lists of no split
    for split, paths in found.items():
        own = [path for path in paths if path.stem == split] or paths
        if len(own) > 1:
            raise DatasetError(
                f"{own[0]} and {own[1]} are both for the split {split!r}; call one of them "
                f"{split}.txt, or move one away"
            )
        yield split, own[0]


def is_voc(path: Path) -> bool:
    return bool(_ROOT.search(read_head(path, _HEAD_BYTES).replace(b"\0", b"")))  # in UTF-16 too


def parse(path: Path) -> Parsed | None:
    """Read the XML file of an image; OSError or ValueError says where it is broken.

    Difficult objects and parts of objects, such as a hand, are left out. The corners of a box may
    be exchanged, which is noted.
    """
    root = read_xml(path)
    if root.tag != "annotation":
        return None
    texts = [_text(root, f"size/{name}") for name in ("height", "width")]
    height, width = (int(read_number(text or 0, "a side of the image")) for text in texts)
    # Tools that did not know it leave it out, or write 0.
    labels = ImageLabels(Path(), (height, width) if min(height, width) > 1 else UNKNOWN)
    for number, element in enumerate(root.findall("object"), start=1):
        try:
            _add(labels, element, number)
        except ValueError as error:
            raise ValueError(f"object {number}: {error}") from error
    boxes = [box for _, box, _ in labels.objects]
    counts_from_one = _text(root, "source/database").startswith(_COUNTS_FROM_ONE)
    # Many tools have copied the name of the database, but not the counting: some box begins at 0.
    if counts_from_one and all(min(box[:2]) >= 1 for box in boxes):
        labels.objects = [
            (name, (left - 1, top - 1, right, bottom), outline)
            for name, (left, top, right, bottom), outline in labels.objects
        ]
    return _text(root, "filename"), labels


def _text(element: Element, name: str) -> str:
    return (element.findtext(name) or "").strip()


def _add(labels: ImageLabels, element: Element, number: int) -> None:
    class_name = _text(element, "name")
    if not class_name:
        raise ValueError("no name")
    if _text(element, "difficult").lower() in ("1", "true"):
        labels.left_out.append("difficult objects")
        return
    outline = _outline(element)
    box = element.find("bndbox")
    if box is None:
        raise ValueError("no bndbox")
    left, top, right, bottom = (read_number(_text(box, name), name) for name in _CORNERS)
    corners = min(left, right), min(top, bottom), max(left, right), max(top, bottom)
    if corners != (left, top, right, bottom):
        text = f"object {number}, xmin {left:g}, ymin {top:g}, xmax {right:g}, ymax {bottom:g}"
        labels.exchanged.append(text)
    labels.add(class_name, corners, outline)


def _outline(element: Element) -> np.ndarray:
    """Return the polygon (K, 2) that Roboflow writes as x1, y1, x2, ...; K is 0 without one."""
    polygon = element.find("polygon")
    texts = {} if polygon is None else {child.tag: (child.text or "").strip() for child in polygon}
    points: list[list[float]] = []
    while f"x{len(points) + 1}" in texts:
        names = f"x{len(points) + 1}", f"y{len(points) + 1}"
        points.append([read_number(texts.get(name, ""), name) for name in names])
    return np.array(points) if len(points) > 2 else NO_OUTLINE


_FILES = FilePerImage("Pascal VOC", ".xml", is_voc, parse)
VOC = Format(_FILES.name, _FILES.accepts, find, _FILES.read)
