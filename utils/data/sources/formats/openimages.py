"""OpenImages: a CSV file of boxes for each split, and one of class names.

Before: `table.py`. After: `annotations.py`.

Source: storage.googleapis.com/openimages/web/download_v7.html, "Data Formats".
"""

from __future__ import annotations

import csv
import logging
import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from utils.data.sources.formats.annotations import NORMALISED, Annotations
from utils.data.sources.formats.file_names import image_files
from utils.data.sources.formats.folders import find_files
from utils.data.sources.formats.format import AnnotatedFolder, Format
from utils.data.sources.formats.image_names import ambiguous, listed_in
from utils.errors import DatasetError, brief
from utils.files.regular import open_regular, read_text
from utils.polygons import Polygons, starts_of

NAME = "OpenImages CSV"
COLUMNS = ("ImageID", "LabelName", "XMin", "YMin", "XMax", "YMax")
GROUP = "IsGroupOf"
NEARBY = ("annotations", "labels", "csv_folder")  # CVAT's and FiftyOne's exports, OIDv4_ToolKit
CLASS_FILES = ("*class-descriptions-boxable.csv", "*class-descriptions.csv", "metadata/classes.csv")
MAX_LINE_BYTES = 1 << 14
MAX_NAMES_BYTES = 1 << 24  # 20,000 classes have 600 kB

_AROUND = b' "\r\n'  # what a program may write around a value

log = logging.getLogger("data")


def accepts(path: Path) -> bool:
    """Return whether a CSV file begins with the columns of OpenImages's boxes."""
    try:
        with open_regular(path) as file:
            return set(COLUMNS) <= set(_columns(file.readline(MAX_LINE_BYTES)))
    except OSError:
        return False


def find(path: Path) -> Mapping[str, list[AnnotatedFolder]]:
    """Return the splits of a folder, or of one CSV file."""
    return find_files(path, NAME, ".csv", accepts, NEARBY)


def read(folder: AnnotatedFolder) -> Annotations:
    """Read the rows of the images that are there; memory is bounded by what is kept.

    An image without a row is left out: it may have objects that nobody has drawn. Rows of groups
    (IsGroupOf) are left out as crowds.

    Raises:
        DatasetError: a file that cannot be read.
    """
    is_listed = listed_in(folder.image_list, folder.images)
    files: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(filter(is_listed, image_files(folder.images))):
        files[path.stem].append(path)
    rows = _Rows({os.fsencode(stem): index for index, stem in enumerate(files)})
    try:
        rows.read(folder.annotations)
    except OSError as error:
        raise DatasetError(f"{folder.annotations}: {error.strerror}") from error
    return rows.annotations([*files.values()], _names(folder.annotations))


class _Rows:
    """The rows of the images that are there, in arrays: OpenImages has 14.6 million."""

    def __init__(self, index_of: Mapping[bytes, int]):
        self._index_of = index_of
        self._image = array("q")
        self._label = array("q")
        self._boxes = array("d")
        self._labels: dict[bytes, int] = {}
        self._broken: dict[int, str] = {}
        self._known: set[int] = set()  # images of which there is a row
        self._left_out: Counter[str] = Counter()

    def read(self, path: Path) -> None:
        with open_regular(path) as file:
            columns = _columns(file.readline(MAX_LINE_BYTES))
            place = _Places.of(columns)
            image_id = place.image_id
            lines = iter(partial(file.readline, MAX_LINE_BYTES), b"")
            for number, line in enumerate(lines, start=2):
                start = line.split(b",", image_id + 1)
                if len(start) <= image_id:
                    continue  # a blank line
                index = self._index_of.get(start[image_id].strip(_AROUND))
                if index is not None:
                    self._add(index, place, line.split(b","), number)

    def _add(self, index: int, place: _Places, fields: list[bytes], number: int) -> None:
        self._known.add(index)
        try:
            if place.group is not None and fields[place.group].strip() in (b"1", b"true", b"True"):
                self._left_out["crowds"] += 1
                return
            box = [float(fields[column]) for column in place.box]
            label = fields[place.label].strip(_AROUND)
        except (IndexError, ValueError):
            text = b",".join(fields).decode("utf-8", "replace").strip()
            self._broken.setdefault(index, f"line {number}: no box in {text[:120]!r}")
            return
        self._image.append(index)
        self._label.append(self._labels.setdefault(label, len(self._labels)))
        self._boxes.extend(box)

    def annotations(self, files: list[list[Path]], names: Mapping[str, str]) -> Annotations:
        """Return the rows image by image, their order in the file kept.

        Args:
            files: those that each image may be.
        """
        known = np.array(sorted(self._known), np.int64)
        if len(files) > len(known):
            self._left_out["images without a row"] = len(files) - len(known)
        of_several = {i: ambiguous(files[i]) for i in self._known if len(files[i]) > 1}
        broken = self._broken | of_several
        image = np.searchsorted(known, np.array(self._image, np.int64))
        order = np.argsort(image, kind="stable")
        class_names, class_of = _classes([*self._labels], names)
        starts = starts_of(np.bincount(image, minlength=len(known)))
        return Annotations(
            class_names,
            tuple(str(files[index][0]) for index in known),
            np.full((len(known), 2), NORMALISED, np.int64),
            starts,
            class_of[np.array(self._label, np.int64)[order]],
            np.array(self._boxes, np.float64).reshape(-1, 4)[order],
            Polygons(np.zeros((0, 2)), np.zeros(len(order) + 1, np.int64)),
            {int(np.searchsorted(known, index)): why for index, why in broken.items()},
            dict(self._left_out),
        )


class _Places(NamedTuple):
    """In which columns the values are."""

    image_id: int
    label: int
    box: tuple[int, ...]  # left, top, right, bottom
    group: int | None

    @staticmethod
    def of(columns: list[str]) -> _Places:
        image_id, label, *box = map(columns.index, COLUMNS)
        return _Places(
            image_id, label, tuple(box), columns.index(GROUP) if GROUP in columns else None
        )


def _columns(line: bytes) -> list[str]:
    """Return the names in the first line of a CSV file."""
    text = line.decode("utf-8-sig", "replace").strip()
    return [name.strip().strip('"') for name in text.split(",")]


def _classes(labels: list[bytes], names: Mapping[str, str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the class names, sorted, and the class of each label, (L,) int64."""
    texts = [label.decode("utf-8", "replace") for label in labels]
    named = [names.get(text, text) for text in texts]
    if unknown := sorted(text for text in set(texts) - set(names) if text.startswith("/")):
        log.info(
            "no class-descriptions-boxable.csv names the class %s; its code is used as its name",
            brief(unknown[0]),
        )
    class_names = tuple(sorted(set(named)))
    index_of = {name: index for index, name in enumerate(class_names)}
    return class_names, np.array([index_of[name] for name in named], np.int64)


def _names(boxes: Path) -> Mapping[str, str]:
    """Return the names of labels: "Dog" of "/m/0bt9lr"; none without a file that has them."""
    return next((dict(_named_labels(file)) for file in _class_files(boxes)), {})


def _class_files(boxes: Path) -> Iterator[Path]:
    for folder in (boxes.parent, boxes.parent.parent):
        for pattern in CLASS_FILES:
            yield from sorted(folder.glob(pattern))


def _named_labels(path: Path) -> Iterator[tuple[str, str]]:
    try:
        for row in csv.reader(read_text(path, MAX_NAMES_BYTES).splitlines()):
            if len(row) >= 2 and row[0] != "LabelName":
                yield row[0].strip().removeprefix("\ufeff"), row[1].strip()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path}: class names cannot be read: {error!s:.300}") from error


OPENIMAGES = Format(
    NAME, accepts, find, read, also_reads=lambda folder: _class_files(folder.annotations)
)
