"""Record files of images: their index, and the images in them, read only from it.

The index is the last record. Layout, little-endian: 8 bytes "duet-img", u32 version 1, u32 number
of images; then for each image u32 height, u32 width, i32 bytes of labels (-1: it has no label
file), u16 bytes of name, the name in UTF-8, the label file's bytes.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from duet.utils.data.image.header import CheckedFile, check_size
from duet.utils.data.records.layout import (
    damaged_record,
    forget_open_files,
    read_record,
    read_table,
)
from duet.utils.data.sources.image_sources import ImageSource, Records
from duet.utils.data.sources.label_file import MAX_LABEL_BYTES, label_name
from duet.utils.errors import DatasetError
from duet.utils.image_limits import MAX_SIDE, MIN_SIDE
from duet.utils.text import count

MAGIC = b"duet-img"
VERSION = 1
MAX_INDEX_BYTES = 1 << 27
MAX_NAME_BYTES = 1024
NO_LABELS = -1
_START = struct.Struct("<8sII")
_ENTRY = struct.Struct("<IIiH")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")


class ImageEntry(NamedTuple):
    name: str  # relative, "images/train/a.jpg"
    height: int  # pixels, as decoded: EXIF rotation applied
    width: int
    labels: bytes | None  # the label file as it was; None: there was none


class BrokenIndexError(Exception): ...


def encode_index(entries: Sequence[ImageEntry]) -> bytes:
    """Return the index of these images; all have passed `check_entry`."""
    return b"".join([_START.pack(MAGIC, VERSION, len(entries)), *map(encode_entry, entries)])


def encode_entry(entry: ImageEntry) -> bytes:
    name, labels = entry.name.encode(), entry.labels or b""
    num_bytes = NO_LABELS if entry.labels is None else len(labels)
    return _ENTRY.pack(entry.height, entry.width, num_bytes, len(name)) + name + labels


def decode_index(content: bytes, num_images: int) -> list[ImageEntry]:
    """Return the entries of an index that describes this many images.

    BrokenIndexError: an unknown version, another number of images, or a value out of range.
    """
    if len(content) < _START.size:
        raise BrokenIndexError(f"has {len(content)} bytes, at least {_START.size} are needed")
    _, version, stored = _START.unpack_from(content)
    if version != VERSION:
        raise BrokenIndexError(f"has version {version}; version {VERSION} is known here")
    if stored != num_images:
        held = f"{num_images} in the file"
        raise BrokenIndexError(f"describes {count(stored, 'image')}, and there are {held}")
    entries, end = [], _START.size
    for number in range(num_images):
        try:
            entry, end = _decode_entry(content, end)
            check_entry(entry)
        except (BrokenIndexError, UnicodeDecodeError) as error:
            raise BrokenIndexError(f"is wrong at image {number}: {error}") from error
        entries.append(entry)
    if end != len(content):
        raise BrokenIndexError(f"has {len(content) - end} bytes after its last image")
    return entries


def _decode_entry(content: bytes, start: int) -> tuple[ImageEntry, int]:
    """Return the entry that starts there, and where it ends."""
    name_start = start + _ENTRY.size
    if name_start > len(content):
        raise BrokenIndexError("it is cut off")
    height, width, num_label_bytes, num_name_bytes = _ENTRY.unpack_from(content, start)
    labels_start = name_start + num_name_bytes
    end = labels_start + max(num_label_bytes, 0)
    if num_label_bytes < NO_LABELS or end > len(content):
        left = len(content) - name_start
        raise BrokenIndexError(
            f"{num_name_bytes} bytes of name and {num_label_bytes} of labels, where {left} are left"
        )
    labels = None if num_label_bytes == NO_LABELS else content[labels_start:end]
    return ImageEntry(content[name_start:labels_start].decode(), height, width, labels), end


def check_entry(entry: ImageEntry) -> None:
    """Raise BrokenIndexError, with the reason, for an image that cannot be in a packed dataset."""
    name = entry.name
    has_drive = name[1:2] == ":" and name[0].isascii() and name[0].isalpha()  # on Windows
    if has_drive or any(part in ("", ".", "..") for part in name.split("/")):
        raise BrokenIndexError(f"its name {name!r} is not a plain path below the dataset's folder")
    if name.splitlines() != [name] or name.strip() != name or _NOT_IN_NAMES.search(name):
        raise BrokenIndexError(
            f"its name {name!r} has a backslash, a control character, a blank at an end, or is not "
            "UTF-8"
        )
    if len(name.encode()) > MAX_NAME_BYTES:
        raise BrokenIndexError(f"its name {name!r} is longer than {MAX_NAME_BYTES} bytes")
    if not all(MIN_SIDE <= side <= MAX_SIDE for side in (entry.height, entry.width)):
        raise BrokenIndexError(
            f"it is {entry.width}x{entry.height} px; {MIN_SIDE} to {MAX_SIDE} per side are accepted"
        )
    if len(entry.labels or b"") > MAX_LABEL_BYTES:
        raise BrokenIndexError(f"its labels have over {MAX_LABEL_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class RecordImage(ImageSource):
    """An image in a record file; `path` is FILE/NAME."""

    entry: ImageEntry

    @property
    def labels_at(self) -> str:
        name = self.entry.name
        return self.path.as_posix().removesuffix(name) + label_name(name)

    def state(self, now_ns: int) -> bytes | None:
        height, width = self.entry.height, self.entry.width
        text = f"{self.path}\0{height} {width} {self.entry.labels is None}\0"
        return text.encode("utf-8", "surrogatepass") + (self.entry.labels or b"")

    def check(self, max_pixels: int) -> CheckedFile:
        """Return the size in pixels; `pack` has checked that the image is complete."""
        size = self.entry.height, self.entry.width
        check_size(size, max_pixels)
        return CheckedFile(size)

    def label_bytes(self) -> bytes | None:
        return self.entry.labels


def read_record_images(path: Path) -> list[RecordImage]:
    """Return the images of a record file, in their order; DatasetError if damaged or not ours."""
    forget_open_files()
    table = read_table(path)
    last = table.place(len(table) - 1)
    if last.length > MAX_INDEX_BYTES:
        raise damaged_record(
            last, f"is an index of {last.length} bytes; {MAX_INDEX_BYTES} are accepted"
        )
    content = read_record(last).tobytes()
    if not content.startswith(MAGIC):
        raise DatasetError(
            f"{path}: its last record is no index of images, so that another program wrote it; "
            "what such records hold is not guessed, and pickles are never loaded: pack the images "
            "themselves with `duet records pack`"
        )
    try:
        entries = decode_index(content, len(table) - 1)
    except BrokenIndexError as error:
        raise damaged_record(last, f"is an index that {error}") from error
    return [
        RecordImage(path / entry.name, entry, place=place)
        for entry, place in zip(entries, table, strict=False)  # the index has no entry
    ]


RECORDS = Records(read_record_images, read_record)
