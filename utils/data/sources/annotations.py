"""The table of label formats, and reading annotations in any of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from duet.utils.data.sources.formats.coco import COCO
from duet.utils.data.sources.formats.format import (
    AnnotatedFolder,
    Annotations,
    FileNotes,
    Format,
    collect,
)
from duet.utils.data.sources.formats.voc import VOC
from duet.utils.errors import DatasetError
from duet.utils.optional import load_wings

WINGS = ("duet.utils.data.formats",)  # packages with more formats, each in a tuple FORMATS


@cache
def formats() -> tuple[Format, ...]:
    """Return the formats; the first that accepts a path reads it."""
    return (VOC, COCO, *(kind for wing in load_wings(WINGS) for kind in wing.FORMATS))


def format_names() -> str:
    """Return the names of all formats, for messages."""
    return ", ".join(kind.name for kind in formats())


def format_of(annotations: Path) -> str:
    """Return the name of the format of an annotation file or folder.

    Raises:
        DatasetError: no format accepts it.
    """
    for kind in formats():
        if kind.accepts(annotations):
            return kind.name
    raise DatasetError(
        f"{annotations}: no annotations in a format that is read here: {format_names()}"
    )


def read_annotations(folder: AnnotatedFolder) -> Annotations:
    """Read the annotations of a folder.

    Raises:
        DatasetError: a file that cannot be read, or is not in its format.
    """
    (reader,) = [kind for kind in formats() if kind.name == folder.format]
    notes = FileNotes()
    try:
        return collect(reader.read(folder, notes), notes)
    except DatasetError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DatasetError(f"{folder.annotations}: {reason}") from error
