"""OpenImages: a CSV file of boxes for each split, and one of class names.

Source: storage.googleapis.com/openimages/web/download_v7.html, "Data Formats".
"""

import csv
import logging
import os
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from duet.utils.data.sources.formats.format import (
    NORMALISED,
    AnnotatedFolder,
    FileNotes,
    Format,
    ImageLabels,
    read_head,
)
from duet.utils.data.sources.formats.names import FileNames, ambiguous, find_files, listed_in
from duet.utils.errors import DatasetError, brief
from duet.utils.files.regular import open_regular, read_text

NAME = "OpenImages CSV"
COLUMNS = ("ImageID", "LabelName", "XMin", "YMin", "XMax", "YMax")
GROUP = "IsGroupOf"
NEARBY = ("annotations", "labels", "csv_folder")  # CVAT's and FiftyOne's exports, OIDv4_ToolKit
CLASS_FILES = ("*class-descriptions-boxable.csv", "*class-descriptions.csv", "metadata/classes.csv")
MAX_LINE_BYTES = 1 << 14
MAX_NAMES_BYTES = 1 << 24  # 20,000 classes have 600 kB

_AROUND = b' "\r\n'  # characters that may surround a value

log = logging.getLogger("data")


def accepts(path: Path) -> bool:
    return set(COLUMNS) <= set(_columns(read_head(path, MAX_LINE_BYTES).partition(b"\n")[0]))


@dataclass(slots=True)
class _Rows:
    """The rows of an image, in an array: OpenImages has 14.6 million."""

    boxes: array = field(default_factory=partial(array, "d"))  # class number, corners
    num_crowds: int = 0
    broken: str = ""  # why the image cannot be used


def read(folder: AnnotatedFolder, notes: FileNotes) -> Iterator[ImageLabels]:
    """Read the rows of the images that are there; memory is bounded by the kept rows.

    Images without a row may show unlabelled objects and are left out, as are crowds (IsGroupOf).

    OSError, DatasetError: a file that cannot be read.
    """
    images = FileNames(folder.images)
    files: defaultdict[bytes, list[Path]] = defaultdict(list)
    for path in sorted(filter(listed_in(folder.image_list, images), images.paths)):
        files[os.fsencode(path.stem)].append(path)
    rows, codes = _rows_of(folder.annotations, files)
    if absent := len(files) - len(rows):
        notes.left_out["images without a row"] = absent
    names = _class_names(codes, _names(folder.annotations))
    for stem in filter(rows.__contains__, files):
        own, candidates = rows[stem], files[stem]
        broken = own.broken if len(candidates) == 1 else ambiguous(candidates)
        image = ImageLabels(candidates[0], NORMALISED, broken=broken)
        image.left_out = ["crowds"] * own.num_crowds
        for number, left, top, right, bottom in zip(*[iter(own.boxes)] * 5, strict=True):
            image.add(names[int(number)], (left, top, right, bottom))
        yield image


def _rows_of(path: Path, stems: Collection[bytes]) -> tuple[dict[bytes, _Rows], dict[bytes, int]]:
    """Return the rows of the images of these names, and the number of each class's code."""
    found: defaultdict[bytes, _Rows] = defaultdict(_Rows)
    codes: dict[bytes, int] = {}
    with open_regular(path) as file:
        columns = _columns(file.readline(MAX_LINE_BYTES))
        image_id, label, *box = map(columns.index, COLUMNS)
        group = columns.index(GROUP) if GROUP in columns else None
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), start=2):
            fields = line.split(b",")  # a blank line has one
            if len(fields) <= image_id or (stem := fields[image_id].strip(_AROUND)) not in stems:
                continue
            own = found[stem]
            try:
                if group is not None and fields[group].strip(_AROUND) in (b"1", b"true", b"True"):
                    own.num_crowds += 1
                    continue
                coordinates = [float(fields[column].strip(_AROUND)) for column in box]
                number_of_class = codes.setdefault(fields[label].strip(_AROUND), len(codes))
            except (IndexError, ValueError):
                shown = line.decode("utf-8", "replace").strip()[:120]
                own.broken = own.broken or f"line {number}: no box in {shown!r}"
                continue
            own.boxes.extend([number_of_class, *coordinates])
    return found, codes


def _columns(line: bytes) -> list[str]:
    text = line.decode("utf-8-sig", "replace").strip()
    return [name.strip().strip('"') for name in text.split(",")]


def _class_names(codes: Mapping[bytes, int], names: Mapping[str, str]) -> list[str]:
    """Return the class name of each code, in their order; a code without one is its own name."""
    texts = [code.decode("utf-8", "replace") for code in codes]
    if unknown := sorted(text for text in set(texts) - set(names) if text.startswith("/")):
        log.info(
            "no class-descriptions-boxable.csv names the class %s; its code is used as its name",
            brief(unknown[0]),
        )
    return [names.get(text, text) for text in texts]


def _names(boxes: Path) -> Mapping[str, str]:
    """Return the names of labels: "Dog" of "/m/0bt9lr"; none without a file that has them."""
    path = next(_class_files(boxes), None)
    if path is None:
        return {}
    try:
        rows = list(csv.reader(read_text(path, MAX_NAMES_BYTES).splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path}: class names cannot be read: {error!s:.300}") from error
    pairs = [row[:2] for row in rows if len(row) >= 2 and row[0] != "LabelName"]
    return {code.strip().removeprefix("\ufeff"): name.strip() for code, name in pairs}


def _class_files(boxes: Path) -> Iterator[Path]:
    for folder in (boxes.parent, boxes.parent.parent):
        for pattern in CLASS_FILES:
            yield from sorted(folder.glob(pattern))


_find = partial(find_files, format_name=NAME, suffix=".csv", accepts=accepts, nearby=NEARBY)
OPENIMAGES = Format(NAME, accepts, _find, read)
