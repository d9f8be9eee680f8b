"""One image and its labels -> what training uses, and what is wrong.

Training stops reading a label file at its first fault. Here every line is read.
"""

import io
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from duet.utils.data.image.decoding import OtherSizeError, choose_reduction, decode_bytes, read_as
from duet.utils.data.image.fingerprint import NO_FINGERPRINT, UNKNOWN, Fingerprint, fingerprint_of
from duet.utils.data.image.header import UPRIGHT, BrokenImageError, read_header
from duet.utils.data.sources.annotations import OVERSHOOT, AnnotatedImage
from duet.utils.data.sources.class_folders import ClassImage
from duet.utils.data.sources.drawn_split import MOST_DECODED
from duet.utils.data.sources.formats.format import NORMALISED
from duet.utils.data.sources.formats.format import UNKNOWN as NO_SIZE
from duet.utils.data.sources.image_sources import ImageSource
from duet.utils.data.sources.label_file import (
    COORDINATE_TOLERANCE,
    BrokenLabelError,
    LabelRow,
    label_rows,
    repeats,
)
from duet.utils.data.sources.samples import read_image_bytes
from duet.utils.errors import DatasetError
from duet.utils.geometry.boxes import xyxy_to_cxcywh
from duet.utils.image_limits import MAX_PIXELS


class Kind(NamedTuple):
    is_problem: bool  # a fault to correct; otherwise a note
    title: str
    advice: str  # effect on training, the next step, and what --fix does about it


class Finding(NamedTuple):
    kind: str  # a key of KINDS
    split: str  # "" where it is of no split
    where: str  # the file, and the line or object
    text: str  # the finding
    image: int = -1  # number of the image among all; -1 where there is none
    other: int = -1  # number of the image that it is a copy of
    box_xyxy_norm: Sequence[float] = ()  # the object in question, normalized; or empty


# Title and advice, in the order shown: the most harmful first.
_PROBLEMS = {
    "leak": ("Images that are in two splits",
        "Delete one, or list it in one split; without val use --split 0.8"),
    "near_leak": ("Images that look alike, in two splits",
        "Move both to one side, as --split 0.8 does"),
    "two_classes": ("Images that are in the folders of two classes",
        "Delete the one in the wrong folder"),
    "unusable_image": ("Images that are missing, damaged, too small or too large",
        "Copy or export them again, or take them off the list"),
    "broken_label": ("Labels that cannot be read",
        "Training leaves the image out: a line is class, centre x and y, width, height, from 0 to "
        "1; or a class and a polygon"),
    "other_shape": ("Annotations of an image of another shape",
        "Find the image that was labelled, or label this one again"),
    "unknown_class": ("Objects of an unknown class",
        "Correct the class or the dataset's names; --fix drops the object"),
    "out_of_range": ("Boxes far outside the image",
        "Export fractions, not pixels; --fix clips what overlaps the image"),
    "near_label": ("Label files that are not read, under another name or in another place",
        "Rename or move them: training takes their images for empty"),
    "zero_area": ("Objects without an area",
        "Training leaves them out: delete them; --fix drops them"),
    "repeated_object": ("Objects that are labelled twice", "Delete the second; --fix drops it"),
    "lost_labels": ("Label files without an image",
        "Find the image, or correct one of the two names"),
    "similar_names": ("Class names that are nearly equal",
        "If they mean one class, count one as the other with this key of the dataset YAML"),
    "repeated_image": ("Images that are there twice", "Delete the copy, or list the file once"),
    "no_objects": ("Splits without an object",
        "Training ends there: label them, or correct the names of the label files"),
    "not_in_train": ("Classes that only validation shows", "Give training some images of them"),
}  # fmt: skip
_NOTES = {
    "overshoot": ("Boxes that reach over the edge by a little",
        "They are clipped; a label file with a coordinate above 1.0001 costs its image; --fix "
        "corrects it"),
    "missing_split": ("Splits that are missing",
        "Name images for val, or draw them: --split 0.8, as training does in a folder without "
        "splits"),
    "bare_number": ("Classes that are called by a number, among classes with a name",
        "Name them, or correct their objects"),
    "alike": ("Images that look alike, in one split", "Delete those that show nothing new"),
    "turned": ("Images that are turned by EXIF", "A labelling tool may not: look at the boxes"),
    "no_label_file": ("Images without a label file", "Make sure that they show no object"),
    "no_outline": ("Objects without an outline, while others have one",
        "Where masks are learned, label their outlines"),
    "exchanged_corners": ("Boxes whose corners are exchanged",
        "Training exchanges them back: look at the boxes"),
    "no_end_mark": ("JPEG files that lack only their end mark",
        "They are read; --fix writes them anew"),
    "skipped": ("Files and folders that are skipped", "Delete them, or make them readable"),
    "unused_image": ("Images that the dataset does not name", "Label or list them, or leave them"),
}  # fmt: skip
KINDS = {name: Kind(True, *words) for name, words in _PROBLEMS.items()} | {
    name: Kind(False, *words) for name, words in _NOTES.items()
}


SMALL = 64  # pixels of the long side, to see whether an image can be decoded
NO_OBJECTS = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
_IN_PIXELS = "out_of_range", "overshoot"
_EDGES = "xmin", "ymin", "xmax", "ymax"
MOST_FAULTS = 1000  # per image: a file that is not a label file may have millions


class CheckedImage(NamedTuple):
    """An image and the objects on it that training uses."""

    split: str
    source: ImageSource
    size: tuple[int, int] | None  # (height, width) in pixels; None where it cannot be read
    is_used: bool = False  # False: training leaves it out
    fingerprint: Fingerprint = NO_FINGERPRINT
    class_index: np.ndarray = NO_OBJECTS[0]  # (M,) int64
    boxes_cxcywh_norm: np.ndarray = NO_OBJECTS[1]  # (M, 4) float32
    num_outlines: int = 0  # objects with a polygon


def inspect(
    split: str, source: ImageSource, num_classes: int, max_pixels: int = MAX_PIXELS
) -> tuple[CheckedImage, list[Finding]]:
    """Return an image with its usable objects, and all faults of it and its labels.

    max_pixels: limit per image; training skips larger ones.
    """
    path = str(source.path)
    try:
        size, lacks_end = read_as(source.path, partial(source.check, max_pixels))
    except BrokenImageError as error:
        finding = Finding("unusable_image", split, path, str(error))
        return CheckedImage(split, source, None), [finding]
    found = [Finding("no_end_mark", split, path, "it has all its pixels")] if lacks_end else []
    rows = read_rows(source, num_classes, size)
    for row in filter(lambda row: row.kind, rows):
        where = ": ".join(filter(None, [source.labels_at, row.place]))
        found.append(Finding(row.kind, split, where, row.fault, box_xyxy_norm=row.box_xyxy_norm))
    remarks = source.remarks(sum(row.is_decided for row in rows))
    found += [Finding(x.kind, split, *x.text.rpartition(": ")[::2]) for x in remarks]
    if is_unlabelled(source) and not remarks:
        found.append(Finding("no_label_file", split, path, f"there is no {source.labels_at}"))
    try:
        fingerprint, is_turned = read_as(source.path, partial(_look_at, source, size))
    except (BrokenImageError, DatasetError, OtherSizeError) as error:
        finding = Finding("unusable_image", split, path, str(error))
        return CheckedImage(split, source, size), [*found, finding]
    if is_turned and not isinstance(source, ClassImage):  # classes have no position
        found.append(Finding("turned", split, path, f"shown as {size[1]}x{size[0]} px"))
    try:
        labels = source.read_labels(num_classes, size)
    except BrokenLabelError as error:
        if not found:  # report anything that training refuses
            found.append(Finding("broken_label", split, source.labels_at, str(error)))
        return CheckedImage(split, source, size, False, fingerprint), found
    objects, polygons = (labels.class_index, labels.boxes_cxcywh_norm), labels.polygons_norm
    num_outlines = 0 if polygons is None else int(np.count_nonzero(polygons.num_points))
    return CheckedImage(split, source, size, True, fingerprint, *objects, num_outlines), found


def _look_at(source: ImageSource, size: tuple[int, int]) -> tuple[Fingerprint, bool]:
    """Return the fingerprint of an image that can be decoded, and whether EXIF turns it."""
    content = read_image_bytes(source.path, source.place)
    found = fingerprint_of(content, MOST_DECODED)
    # It is flat, or cannot be decoded, which is an error here. Large ones take much memory.
    if found.look == UNKNOWN and size[0] * size[1] <= MOST_DECODED:
        decode_bytes(content, size, choose_reduction(size, SMALL))
    return found, read_header(io.BytesIO(content.data)).orientation != UPRIGHT


def count_objects(images: Sequence[CheckedImage], split: str, num_classes: int) -> np.ndarray:
    """Return how many objects of a split training uses, (num_classes,) int64."""
    found = [image.class_index for image in images if image.split == split]
    return np.bincount(np.concatenate([NO_OBJECTS[0], *found]), minlength=num_classes)


def read_rows(image: ImageSource, num_classes: int, size: tuple[int, int]) -> list[LabelRow]:
    """Return all objects of an image of (height, width), those with faults too."""
    found: list[LabelRow] = []
    num_faults = 0
    try:
        for row in _rows(image, num_classes, size):
            found.append(row)
            num_faults += row.kind != ""
            if num_faults == MOST_FAULTS:
                text = f"{MOST_FAULTS:,} faults; the rest is not checked"
                return [*_without_repeats(found), LabelRow("", "broken_label", text)]
    except BrokenLabelError as error:
        return [LabelRow("", error.kind, str(error))]
    return _without_repeats(found)


def _without_repeats(rows: list[LabelRow]) -> list[LabelRow]:
    numbers = [number for number, row in enumerate(rows) if row.is_decided]
    usable = [rows[number] for number in numbers]

    def outline_of(number: int) -> bytes:  # as a training keeps it
        return np.clip(usable[number].outline_norm, 0, 1).astype(np.float32).tobytes()

    originals = repeats([(row.class_index, *row.box_cxcywh_norm) for row in usable], outline_of)
    for number, row, original in zip(numbers, usable, originals, strict=True):
        if row is not usable[original]:
            text = f"the same as {usable[original].place}"
            rows[number] = row._replace(kind="repeated_object", fault=text, is_decided=False)
    return rows


def is_unlabelled(image: ImageSource) -> bool:
    try:
        return image.label_bytes() is None
    except BrokenLabelError:
        return False


def _rows(image: ImageSource, num_classes: int, size: tuple[int, int]) -> Iterator[LabelRow]:
    if not isinstance(image, AnnotatedImage):
        yield from rows_of_text(image.label_bytes() or b"", num_classes)
        return
    class_index, boxes, polygons = image.read_objects(size)
    boxes_cxcywh = xyxy_to_cxcywh(boxes).tolist()
    for number, (index, box) in enumerate(zip(class_index.tolist(), boxes_cxcywh, strict=True)):
        outline = [] if polygons is None else polygons.outline(number).ravel().tolist()
        row = LabelRow(f"object {number + 1}", "", "", index, box, outline)
        row = _judged(row, [*row.box_xyxy_norm, *outline], OVERSHOOT)
        yield row._replace(fault=_fault_in_pixels(row, image, size) or row.fault)


def _fault_in_pixels(row: LabelRow, image: AnnotatedImage, size: tuple[int, int]) -> str:
    """Return the fault of a box in pixels, as its annotations are; "" for any other fault."""
    annotated = tuple(image.annotations.sizes[image.index].tolist())
    height, width = size if annotated == NO_SIZE else annotated
    if annotated == NORMALISED or row.kind not in _IN_PIXELS or not _beyond(row.box_xyxy_norm, 0):
        return ""
    furthest = int(np.argmax(np.abs(np.array(row.box_xyxy_norm) - 0.5)))
    side = (width, height)[furthest % 2]
    return f"{_EDGES[furthest]} {row.box_xyxy_norm[furthest] * side:g} of {side} px"


def rows_of_text(content: bytes, num_classes: int) -> Iterator[LabelRow]:
    """Yield the lines of a label file, and tell far outside from a little outside."""
    for row in label_rows(content, num_classes):
        # Training refuses a coordinate as it is written, not an edge of the box.
        written = row.outline_norm or row.box_cxcywh_norm
        yield row if row.kind else _judged(row, written, COORDINATE_TOLERANCE)


def _judged(row: LabelRow, written: Sequence[float], tolerance: float) -> LabelRow:
    """Return an object with its fault, if it has one.

    Args:
        written: its coordinates as the file has them.
        tolerance: one further outside leaves the image out.
    """
    width, height = row.box_cxcywh_norm[2:]
    left, top, right, bottom = row.box_xyxy_norm
    edges = [*row.box_xyxy_norm, *row.outline_norm]
    refused = _beyond(written, tolerance)
    if refused and _beyond([*edges, *written], OVERSHOOT):
        return row._replace(kind="out_of_range", fault=f"coordinate {refused}")
    if not (width > 0 and height > 0 and left < 1 and top < 1 and right > 0 and bottom > 0):
        return row._replace(kind="zero_area", fault=f"a box of {width:g} x {height:g}")
    if value := refused or _beyond(edges, COORDINATE_TOLERANCE):
        kind = "out_of_range" if _beyond(edges, OVERSHOOT) else "overshoot"
        return row._replace(kind=kind, fault=f"an edge at {value} of the side", is_decided=True)
    return row._replace(is_decided=True)


def _beyond(coordinates_norm: Sequence[float], tolerance: float) -> str:
    """Return the coordinate furthest outside 0 to 1 by more than a tolerance; or ""."""
    # Min and max may step over NaN, which a sum does not.
    if math.isnan(sum(coordinates_norm)):
        return "nan"
    furthest = max(min(coordinates_norm), max(coordinates_norm), key=lambda value: abs(value - 0.5))
    return f"{furthest:.6g}" if abs(furthest - 0.5) > 0.5 + tolerance else ""
