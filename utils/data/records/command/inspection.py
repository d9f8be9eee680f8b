"""What record files hold and what is damaged in them, for `verify` and `list`.

Before: `sources/record_images.py`. After: lines on screen. Files of other programs are read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from backend.words import count
from utils.data.records.index import ImageEntry
from utils.data.records.layout import SUFFIX, read_table
from utils.data.records.reading import check_record
from utils.data.sources.record_images import read_index
from utils.errors import DatasetError


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return the record files among paths and below folders; raise DatasetError without any."""
    return [file for path in paths for file in _files_of(path)]


def _files_of(path: Path) -> list[Path]:
    candidates = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
    files = [file for file in candidates if file.suffix == SUFFIX and file.is_file()]
    if not files:
        raise DatasetError(f"{path}: a file that ends in {SUFFIX}, or a folder of some, is needed")
    return files


def find_damages(path: Path) -> list[str]:
    """Check every checksum of a record file; return a text for each damaged record."""
    try:
        table = read_table(path)
    except DatasetError as error:
        return [str(error)]
    try:
        entries, damages = read_index(table) or [], []
    except DatasetError as error:
        entries, damages = [], [str(error)]
    for place in table:
        try:
            check_record(place)
        except DatasetError as error:
            named = place.number < len(entries)
            image = f" (image {entries[place.number].name})" if named else ""
            damages.append(f"{error}{image}")
    return list(dict.fromkeys(damages))  # the index may be in it twice


def describe_file(path: Path) -> Iterator[str]:
    """Yield a line for the file and one for each record."""
    table = read_table(path)
    entries = read_index(table)
    kind = "of another program" if entries is None else "the last one is the index"
    yield f"{path}: {count(len(table), 'record')}, {path.stat().st_size} bytes, {kind}"
    images = [f"  {_describe(entry)}" for entry in entries or []]
    images += [""] * (len(table) - len(images))
    for place, image in zip(table, images, strict=True):
        yield f"{place.number:8d} {place.length:12d} bytes  CRC {place.checksum:08x}{image}"


def _describe(entry: ImageEntry) -> str:
    num_lines = len((entry.labels or b"").splitlines())
    labels = "no label file" if entry.labels is None else f"{num_lines} label lines"
    return f"{entry.width}x{entry.height} px  {labels}  {entry.name}"
