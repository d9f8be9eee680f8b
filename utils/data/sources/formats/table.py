"""The label formats that `--data` takes, beside YOLO's own.

Before: `sources/recognised.py`, `sources/dataset_yaml.py`. After: the format's own file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from utils.data.sources.formats.annotations import Annotations
from utils.data.sources.formats.coco import COCO
from utils.data.sources.formats.cvat import CVAT
from utils.data.sources.formats.format import AnnotatedFolder, Format
from utils.data.sources.formats.kept_annotations import read_kept
from utils.data.sources.formats.label_studio import LABEL_STUDIO
from utils.data.sources.formats.labelme import LABELME
from utils.data.sources.formats.openimages import OPENIMAGES
from utils.data.sources.formats.voc import VOC
from utils.errors import DatasetError

# The first that accepts a path reads it.
FORMATS: tuple[Format, ...] = (VOC, COCO, LABELME, CVAT, LABEL_STUDIO, OPENIMAGES)


def find_formats(path: Path) -> Iterator[tuple[str, Mapping[str, list[AnnotatedFolder]]]]:
    """Yield each format in which a dataset folder or annotation file is, with its splits.

    Raises:
        DatasetError: it is in the next format, and cannot be used.
    """
    for kind in FORMATS:
        if found := kind.find(path):
            yield kind.name, found


def format_of(annotations: Path) -> str:
    """Return the name of the format of an annotation file or folder.

    Raises:
        DatasetError: it is in none of them.
    """
    for kind in FORMATS:
        if kind.accepts(annotations):
            return kind.name
    names = ", ".join(kind.name for kind in FORMATS)
    raise DatasetError(f"{annotations}: no annotations in a format that is read here: {names}")


def read_annotations(folder: AnnotatedFolder) -> Annotations:
    """Read the annotations of a folder; those of many images are kept for the next time.

    Raises:
        DatasetError: a file that cannot be read, or is not in its format.
    """
    (reader,) = [kind for kind in FORMATS if kind.name == folder.format]
    return read_kept(folder, reader)
