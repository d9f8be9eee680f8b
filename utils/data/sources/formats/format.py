"""The interface of a label format, and the loop that collects what a format yields."""

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duet.utils.errors import brief
from duet.utils.files.regular import open_regular
from duet.utils.files.xml_files import Element
from duet.utils.geometry.boxes import Polygons, starts_of

NORMALISED = (1, 1)  # the size to which coordinates from 0 to 1 are relative
UNKNOWN = (0, 0)  # coordinates are pixels of an image whose size the annotation does not give
NO_OUTLINE = np.zeros((0, 2))
LARGEST = 1e9  # pixels, of a coordinate
MAX_NUMBER_LENGTH = 40  # characters

Box = tuple[float, float, float, float]


class AnnotatedFolder(NamedTuple):
    """Images, and the file or folder with their annotations."""

    format: str  # its name in `annotations.py`; "" if annotations are missing and not needed
    annotations: Path  # a file, or a folder of one file an image
    images: Path  # the folder to which the names of images are relative
    image_list: Path | None = None  # file that lists the split's images; None for all
    subset: str | None = None  # name of the file's subset that is meant; None for all
    is_shared: bool = False  # other annotations may cover the images that these leave out


Splits = Mapping[str, list[AnnotatedFolder]]


@dataclass
class ImageLabels:
    path: Path
    size: tuple[int, int] = UNKNOWN  # (height, width) of the image on which it was labelled
    called: str = "an image of the annotations"  # name in messages
    objects: list[tuple[str, Box, np.ndarray]] = field(default_factory=list)  # class, xyxy, outline
    left_out: list[str] = field(default_factory=list)  # kinds of objects that are not trained on
    exchanged: list[str] = field(default_factory=list)  # boxes that began at their end, used
    is_labelled: bool = True  # False: it has no annotation file
    broken: str = ""  # the first reason why it cannot be used, such as several files of its name

    def add(self, class_name: str, box_xyxy: Box, outline_xy: np.ndarray = NO_OUTLINE) -> None:
        self.objects.append((class_name, box_xyxy, outline_xy))

    def add_outline(self, class_name: str, outline_xy: np.ndarray) -> None:
        self.add(class_name, box_around(outline_xy), outline_xy)

    def refuse(self, reason: str) -> None:
        """Note why the image cannot be used; the first reason counts."""
        self.broken = self.broken or reason


@dataclass
class FileNotes:
    class_names: list[str] = field(default_factory=list)  # in the format's own order
    left_out: Counter[str] = field(default_factory=Counter)  # of no image, by kind
    warnings: list[str] = field(default_factory=list)


class Format(NamedTuple):
    name: str  # official name, such as "COCO JSON"
    accepts: Callable[[Path], bool]
    """Whether a file or folder is in this format; may read the beginning of a file."""
    find: Callable[[Path], Splits]
    """The splits of a folder, or of a file with its images beside it: "train", "val", "test", or
    "" if unknown. Empty if nothing is in this format."""
    read: Callable[[AnnotatedFolder, FileNotes], Iterator[ImageLabels]]
    """Yield the annotations of each image; OSError or ValueError if the file is broken."""


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class Annotations:
    """N images and their T objects as they were labelled: nothing is clipped or dropped.

    Coordinates are pixels of the annotated size, (0, 0) at the top left corner of the image, or
    fractions if the size is `NORMALISED`.
    """

    class_names: Sequence[str]  # in the format's order, then sorted
    paths: Sequence[str]  # paths of the images
    broken: Sequence[str]  # why an image cannot be used; mostly ""
    left_out: Mapping[str, int]  # objects that are not trained on, by kind: "crowds"
    sizes: np.ndarray  # (N, 2) int64, height and width; or `NORMALISED`, or `UNKNOWN`
    starts: np.ndarray  # (N + 1,) int64: image i has the objects starts[i] up to starts[i + 1]
    class_index: np.ndarray  # (T,) int64, into class_names
    boxes_xyxy: np.ndarray  # (T, 4) float64
    polygons: Polygons  # float64, of the T objects; one without points has only a box
    exchanged: Mapping[int, Sequence[str]] = field(default_factory=dict)  # by image
    unlabelled: Set[int] = frozenset()  # images without an annotation file

    def __len__(self) -> int:
        return len(self.paths)

    def objects(self, image: int) -> tuple[np.ndarray, np.ndarray, Polygons | None]:
        """Return the objects of an image: classes, boxes, and outlines if any has one."""
        first, end = self.starts[image : image + 2].tolist()
        polygons = self.polygons.range(first, end)
        return self.class_index[first:end], self.boxes_xyxy[first:end], polygons


def collect(images: Iterable[ImageLabels], notes: FileNotes) -> Annotations:
    """Return the annotations of all images; two images of one file are both broken."""
    paths: list[str] = []
    sizes: list[tuple[int, int]] = []
    broken: list[str] = []
    class_index, counts, num_points = array("q"), array("q"), array("q")
    boxes, points = array("d"), array("d")
    numbers: dict[str, int] = {}
    of_file: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    exchanged, unlabelled = {}, set()
    for index, image in enumerate(images):
        paths.append(str(image.path))
        sizes.append(image.size)
        broken.append(image.broken)
        counts.append(len(image.objects))
        for class_name, box, outline in image.objects:
            class_index.append(numbers.setdefault(class_name, len(numbers)))
            boxes.extend(box)
            points.frombytes(np.asarray(outline, np.float64).tobytes())
            num_points.append(len(outline))
        notes.left_out.update(image.left_out)
        if image.exchanged:
            exchanged[index] = image.exchanged
        if not image.is_labelled:
            unlabelled.add(index)
        if not image.broken:
            of_file[paths[-1]].append((index, image.called))
    for group in filter(lambda found: len(found) > 1, of_file.values()):
        (_, first), (_, second), *_ = group
        for index, _ in group:  # whose labels are right is not known
            broken[index] = (
                f"{first} and {second} are both this file; remove one, or put the files into "
                "folders as the labelling tool has them"
            )
    class_names = (*notes.class_names, *sorted(set(numbers) - set(notes.class_names)))
    number_of = {name: number for number, name in enumerate(class_names)}
    class_of = np.array([number_of[name] for name in numbers], np.int64)
    return Annotations(
        class_names,
        tuple(paths),
        tuple(broken),
        dict(notes.left_out),
        np.array(sizes, np.int64).reshape(-1, 2),
        starts_of(np.array(counts)),
        class_of[np.array(class_index, np.int64)],
        np.frombuffer(boxes, np.float64).reshape(-1, 4),
        Polygons(np.frombuffer(points, np.float64).reshape(-1, 2), starts_of(np.array(num_points))),
        exchanged,
        unlabelled,
    )


def box_around(outline_xy: np.ndarray) -> Box:
    (left, top), (right, bottom) = outline_xy.min(0).tolist(), outline_xy.max(0).tolist()
    return left, top, right, bottom


def read_head(path: Path, num_bytes: int) -> bytes:
    """Return the first bytes of a file without a byte order mark; b"" if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(num_bytes).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return b""


def read_number(value: Any, name: str) -> float:
    """Return a number, or the number that a text stands for; ValueError if it is none."""
    try:
        number = float(value) if len(str(value)) <= MAX_NUMBER_LENGTH else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not abs(number) <= LARGEST:
        raise ValueError(f"{name} is {brief(value)}; accepted: a number")
    return number


def read_numbers(source: Mapping[str, object] | Element, *names: str) -> list[float]:
    return [read_number(source.get(name), name) for name in names]


def read_points(value: object, text: str | None = None) -> np.ndarray:
    """Return points (K, 2) float64 from pairs of numbers or texts; ValueError for anything else.

    text: the source of the value, for the message.
    """
    try:
        points = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        points = np.zeros(0)
    if points.ndim != 2 or points.shape[1] != 2 or not (np.abs(points) <= LARGEST).all():
        given = brief(value if text is None else text)
        raise ValueError(f"points are {given}; pairs of x and y are needed")
    return points
