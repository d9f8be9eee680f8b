"""All that a run has found as one JSON file, written image by image.

Before: `run_files.py`. After: a reader of JSON. It is no COCO results file, which val.py writes:
here images without detections, frames of videos and names of classes have their place too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from utils.files.growing import GrowingFile, growing_file


def json_line(value: Any) -> str:
    """Return a value in one line of JSON that shows as it is, in characters of all languages.

    What does not show is escaped. A byte of a file name that is no UTF-8 is spelt out: half a
    character is no text to many readers of JSON.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    if "\ud800" <= character <= "\udfff":
        return f"\\\\u{ord(character):04x}"
    return json.dumps(character)[1:-1]


class DetectionsFile:
    """A JSON file that grows by records: {"class_names": [...], "images": [record, ...]}."""

    def __init__(self, file: GrowingFile, class_names: Sequence[str]) -> None:
        self._file = file
        file.add(f'{{"class_names": {json_line(list(class_names))}, "images": ['.encode())
        self._start = file.length

    def add(self, record: str) -> None:
        """Write the record of an image, one line of JSON; OSError names the file."""
        separator = "\n" if self._file.length == self._start else ",\n"
        self._file.add(f"{separator}{record}".encode())


@contextmanager
def open_detections_file(path: Path, class_names: Sequence[str]) -> Iterator[DetectionsFile]:
    """Yield a file that is there when the block has ended; OSError names it."""
    with growing_file(path, end=b"\n]}\n") as file:
        yield DetectionsFile(file, class_names)
