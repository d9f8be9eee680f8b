"""Record files -> the images in them, with size and labels, read only from the index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from utils.data.image.header import check_size
from utils.data.records.index import (
    MAGIC,
    MAX_INDEX_BYTES,
    BrokenIndexError,
    ImageEntry,
    decode_index,
)
from utils.data.records.layout import SUFFIX, RecordPlace, RecordTable, read_table
from utils.data.records.reading import forget_open_files, read_record, read_start
from utils.data.sources.label_file import Labels, label_path, parse_labels
from utils.errors import DatasetError


@dataclass(frozen=True)
class RecordImage:
    """An image in a record file; of the same shape as `labels.ImageFile`."""

    entry: ImageEntry
    place: RecordPlace

    @property
    def path(self) -> Path:
        """The record file, then the image's name in it: what messages and image ids show."""
        return self.place.path / self.entry.name

    @property
    def labels_at(self) -> str:
        return str(self.place.path / label_path(Path(self.entry.name)))

    def state(self, now_ns: int) -> bytes | None:
        """Return the entry of the index, which is all that is read."""
        height, width = self.entry.height, self.entry.width
        text = f"{self.path}\0{height} {width} {self.entry.labels is None}\0"
        return text.encode("utf-8", "surrogatepass") + (self.entry.labels or b"")

    def read_size(self, max_pixels: int) -> tuple[int, int]:
        """Return (height, width) in pixels, or raise BrokenImageError.

        `pack` has checked that the image is complete.
        """
        size = self.entry.height, self.entry.width
        check_size(size, max_pixels)
        return size

    def read_labels(self, num_classes: int, size: tuple[int, int]) -> Labels:
        """Return the objects, or raise BrokenLabelError."""
        return parse_labels(self.entry.labels, num_classes)


def find_record_files(entry: Path) -> list[Path]:
    """Return the record files that a dataset YAML's entry names: one, or a folder's by name."""
    if entry.is_dir():
        return sorted(path for path in entry.glob(f"*{SUFFIX}") if path.is_file())
    return [entry] if entry.suffix == SUFFIX and entry.is_file() else []


def read_record_images(path: Path) -> list[RecordImage]:
    """Return the images of a record file, in their order.

    Raises:
        DatasetError: the file is damaged, or no file of ours.
    """
    forget_open_files()
    table = read_table(path)
    entries = read_index(table)
    if entries is None:
        raise DatasetError(
            f"{path}: its last record is no index of images, so that another program wrote it; "
            "what such records hold is not guessed, and pickles are never loaded: pack the images "
            "themselves with `python -m utils.data.records pack`"
        )
    return [RecordImage(entry, table.place(number)) for number, entry in enumerate(entries)]


def read_index(table: RecordTable) -> list[ImageEntry] | None:
    """Return the index of a record file; None when another program wrote the file.

    Raises:
        DatasetError: the index is damaged.
    """
    if not len(table):
        return None
    place = table.place(len(table) - 1)
    if read_start(place, len(MAGIC)) != MAGIC:
        read_record(place)
        return None
    if place.length > MAX_INDEX_BYTES:
        raise place.damaged(f"is an index of {place.length} bytes; {MAX_INDEX_BYTES} are accepted")
    try:
        return decode_index(read_record(place).tobytes(), len(table) - 1)
    except BrokenIndexError as error:
        raise place.damaged(f"is an index that {error}") from error
