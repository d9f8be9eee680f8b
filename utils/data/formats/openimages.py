"""OpenImages: a CSV file of boxes for each split, and one of class names.

Source: storage.googleapis.com/openimages/web/download_v7.html, "Data Formats".
"""

import csv
import logging
import os
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

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


def read(folder: AnnotatedFolder, notes: FileNotes) -> Iterator[ImageLabels]:
    """Read the rows of the images that are there; memory is bounded by the kept rows.

    Images without a row may show unlabelled objects and are left out, as are crowds (IsGroupOf).

    OSError, DatasetError: a file that cannot be read.
    """
    images = FileNames(folder.images)
    files: defaultdict[bytes, list[Path]] = defaultdict(list)
    for path in sorted(filter(listed_in(folder.image_list, images), images.paths)):
        files[os.fsencode(path.stem)].append(path)
    rows = _Rows({stem: index for index, stem in enumerate(files)})
    rows.read(folder.annotations)
    if absent := len(files) - len(rows.known):
        notes.left_out["images without a row"] = absent
    names = _class_names(rows.labels, _names(folder.annotations))
    order = np.argsort(np.array(rows.image, np.int64), kind="stable")
    bounds = np.searchsorted(np.array(rows.image, np.int64)[order], np.arange(len(files) + 1))
    label, boxes = np.array(rows.label, np.int64), np.array(rows.boxes).reshape(-1, 4)
    paths = list(files.values())
    for index in sorted(rows.known):
        candidates, (num_crowds, broken) = paths[index], rows.known[index]
        if len(candidates) > 1:
            broken = ambiguous(candidates)
        image = ImageLabels(candidates[0], NORMALISED, broken=broken)
        image.left_out = ["crowds"] * num_crowds
        own = order[bounds[index] : bounds[index + 1]]
        for number, box in zip(label[own].tolist(), boxes[own].tolist(), strict=True):
            image.add(names[number], box)
        yield image


class _Rows:
    """The rows of the images that are there, in arrays: OpenImages has 14.6 million."""

    def __init__(self, index_of: Mapping[bytes, int]) -> None:
        self._index_of = index_of
        self.labels: dict[bytes, int] = {}  # the codes of classes
        self.image, self.label, self.boxes = array("q"), array("q"), array("d")
        # By image: crowds, and why it cannot be used.
        self.known: defaultdict[int, list] = defaultdict(lambda: [0, ""])

    def read(self, path: Path) -> None:
        with open_regular(path) as file:
            columns = _columns(file.readline(MAX_LINE_BYTES))
            image_id, label, *box = map(columns.index, COLUMNS)
            group = columns.index(GROUP) if GROUP in columns else None
            lines = iter(partial(file.readline, MAX_LINE_BYTES), b"")
            for number, line in enumerate(lines, start=2):
                fields = line.split(b",")
                if len(fields) <= image_id:
                    continue  # a blank line
                index = self._index_of.get(fields[image_id].strip(_AROUND))
                if index is None:
                    continue
                known, fields = self.known[index], [field.strip(_AROUND) for field in fields]
                try:
                    if group is not None and fields[group] in (b"1", b"true", b"True"):
                        known[0] += 1
                        continue
                    coordinates = [float(fields[column]) for column in box]
                    code = fields[label]
                except (IndexError, ValueError):
                    text = line.decode("utf-8", "replace").strip()
                    known[1] = known[1] or f"line {number}: no box in {text[:120]!r}"
                    continue
                self.image.append(index)
                self.label.append(self.labels.setdefault(code, len(self.labels)))
                self.boxes.extend(coordinates)


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
