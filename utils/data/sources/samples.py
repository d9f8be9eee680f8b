"""Usable images and their objects: a sample, its image, and all samples of a split as arrays.

Separate arrays would take a kilobyte per image. In a table an image takes 28 bytes and as many as
the longest name, an object 24, and a point of a polygon 8.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, overload

import cv2
import numpy as np

from duet.utils.data.image.decoding import Objects, OtherSizeError, decode_bytes, read_as
from duet.utils.data.image.header import BrokenImageError
from duet.utils.data.sources.image_sources import RecordPlace, records_of
from duet.utils.data.sources.remarks import Remarks
from duet.utils.errors import DatasetError
from duet.utils.files.regular import read_bytes
from duet.utils.geometry.boxes import (
    Polygons,
    cxcywh_to_xyxy,
    join_polygons,
    rows_of,
    starts_of,
)
from duet.utils.geometry.detections import GroundTruth
from duet.utils.image_limits import MAX_IMAGE_BYTES

# Any path, whatever the locale's encoding: record files have names that no file has here.
_ENCODING = "utf-8", "surrogatepass"


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class Sample:
    image_path: Path
    height: int  # pixels, as decoded: EXIF rotation applied
    width: int
    class_index: np.ndarray  # (M,) int64
    boxes_cxcywh_norm: np.ndarray  # (M, 4) float32 in [0, 1]
    record: RecordPlace | None = None  # None for a file of its own
    polygons_norm: Polygons | None = None  # float32 in [0, 1], of the M objects; None: only boxes


class Places(NamedTuple):
    files: tuple[Path, ...]
    rows: np.ndarray  # (S, 5) int64: index of the file, or -1; the other fields of `RecordPlace`

    @staticmethod
    def of(places: Iterable[RecordPlace | None]) -> Places | None:
        numbers: dict[Path, int] = {}
        rows = [
            (-1,) * 5 if place is None else (numbers.setdefault(place[0], len(numbers)), *place[1:])
            for place in places
        ]
        return Places(tuple(numbers), np.array(rows, np.int64)) if numbers else None

    def at(self, image: int) -> RecordPlace | None:
        file, *values = self.rows[image].tolist()
        return RecordPlace(self.files[file], *values) if file >= 0 else None


@dataclass(frozen=True, eq=False)
class SampleTable(Sequence[Sample]):
    """S samples with T objects; a sample is made on request, with views of the arrays."""

    encoded_paths: np.ndarray  # (S,) bytes, as of `encode_paths`
    places: Places | None  # None: all images are files of their own
    sizes: np.ndarray  # (S, 2) int32, height and width of each image
    starts: np.ndarray  # (S + 1,) int64: image i has the objects starts[i] up to starts[i + 1]
    class_index: np.ndarray  # (T,) int64
    boxes_cxcywh_norm: np.ndarray  # (T, 4) float32
    polygons_norm: Polygons | None  # T objects
    remarks: Remarks = field(default_factory=Remarks)  # on the split that they are from

    @property
    def paths(self) -> list[str]:
        return list(map(_decode_path, self.encoded_paths.tolist()))

    @property
    def num_objects(self) -> np.ndarray:
        """Number of objects per image, (S,) int64."""
        return np.diff(self.starts)

    @property
    def image_of_object(self) -> np.ndarray:
        """(T,) int64, for each object the index of its image."""
        return np.repeat(np.arange(len(self)), self.num_objects)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> SampleTable: ...
    def __getitem__(self, index: int | slice) -> Sample | SampleTable:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        place = range(len(self))[index]
        first, end = self.starts[place : place + 2].tolist()
        height, width = self.sizes[place].tolist()
        return Sample(
            Path(_decode_path(self.encoded_paths[place])),
            height,
            width,
            self.class_index[first:end],
            self.boxes_cxcywh_norm[first:end],
            None if self.places is None else self.places.at(place),
            None if self.polygons_norm is None else self.polygons_norm.range(first, end),
        )

    def select(self, indices: np.ndarray) -> SampleTable:
        rows = rows_of(self.starts, indices)
        return SampleTable(
            self.encoded_paths[indices],
            self.places and Places(self.places.files, self.places.rows[indices]),
            self.sizes[indices],
            starts_of(self.num_objects[indices]),
            self.class_index[rows],
            self.boxes_cxcywh_norm[rows],
            _selected(self.polygons_norm, rows),
        )

    def with_objects(self, chosen: np.ndarray) -> SampleTable:
        """Return all images with some of the objects, a (T,) bool."""
        num_objects = np.bincount(self.image_of_object[chosen], minlength=len(self))
        return replace(
            self,
            starts=starts_of(num_objects),
            class_index=self.class_index[chosen],
            boxes_cxcywh_norm=self.boxes_cxcywh_norm[chosen],
            polygons_norm=_selected(self.polygons_norm, chosen),
        )


def _selected(polygons: Polygons | None, rows: np.ndarray) -> Polygons | None:
    chosen = None if polygons is None else polygons.select(rows)
    return chosen if chosen is not None and len(chosen.points_xy) else None


def encode_paths(paths: Sequence[Path]) -> np.ndarray:
    """Return paths as one array (N,) of bytes, which workers share; with "/" on Windows too."""
    return np.array([path.as_posix().encode(*_ENCODING) for path in paths], np.bytes_)


def _decode_path(path: bytes) -> str:
    return path.decode(*_ENCODING)


def table_of(samples: Sequence[Sample]) -> SampleTable:
    """Return samples as a table; a table as it is."""
    if isinstance(samples, SampleTable):
        return samples
    no_classes, no_boxes = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    counts = [len(sample.class_index) for sample in samples]
    parts = [(sample.polygons_norm, len(sample.class_index)) for sample in samples]
    return SampleTable(
        encode_paths([sample.image_path for sample in samples]),
        Places.of(sample.record for sample in samples),
        np.array([(sample.height, sample.width) for sample in samples], np.int32).reshape(-1, 2),
        starts_of(np.array(counts, np.int64)),
        np.concatenate([sample.class_index for sample in samples] or [no_classes]),
        np.concatenate([sample.boxes_cxcywh_norm for sample in samples] or [no_boxes]),
        join_polygons(parts),
    )


def read_image_bytes(path: Path, place: RecordPlace | None) -> np.ndarray:
    """Return the bytes of an image as on disk, (N,) uint8.

    DatasetError: the file cannot be read, or the record is damaged.
    """
    if place is not None:
        return records_of(place.path).read(place)
    try:
        return np.frombuffer(read_bytes(path, MAX_IMAGE_BYTES), np.uint8)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error


def pixel_boxes(sample: Sample) -> np.ndarray:
    """Return (M, 4) float64 xyxy boxes in pixels of the file."""
    size = np.array([sample.width, sample.height, sample.width, sample.height], np.float64)
    return cxcywh_to_xyxy(sample.boxes_cxcywh_norm * size)


def objects_of(sample: Sample) -> Objects:
    """Return the objects in pixels of the file, float64."""
    polygons = sample.polygons_norm
    moved = None if polygons is None else polygons.moved((sample.width, sample.height))
    return Objects(sample.class_index, pixel_boxes(sample), moved)


def ground_truth(sample: Sample) -> GroundTruth:
    return GroundTruth(sample.class_index, pixel_boxes(sample))


def decode(sample: Sample, reduction: int = 1) -> np.ndarray:
    """Decode a sample's image, (H, W, 3) uint8 BGR; reduction as in `decode_bytes`.

    DatasetError: it cannot be decoded, or no longer has the size of the scan.
    """
    return read_as(sample.image_path, partial(_decode, sample, reduction))


def read_ahead(samples: Sequence[Sample]) -> Generator[np.ndarray, None, None]:
    """Yield the image of each sample, (H, W, 3) uint8 RGB, and decode the next one meanwhile.

    Close it unless it is iterated to its end. Raises as `decode` does.
    """
    with ThreadPoolExecutor(1) as reader:
        following = None
        for sample in samples:
            current, following = following, reader.submit(_decode_rgb, sample)
            if current is not None:
                yield current.result()
        if following is not None:
            yield following.result()


def _decode_rgb(sample: Sample) -> np.ndarray:
    image = decode(sample)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)


def _decode(sample: Sample, reduction: int) -> np.ndarray:
    content = read_image_bytes(sample.image_path, sample.record)
    try:
        return decode_bytes(content, (sample.height, sample.width), reduction)
    except BrokenImageError as error:
        raise DatasetError(
            f"{sample.image_path}: the image cannot be decoded: {error}; repair or remove it"
        ) from error
    except OtherSizeError as error:
        was_read, next_step = "scanned", "start again"
        if sample.record is not None:
            was_read, next_step = "packed", "pack the dataset again"
        raise DatasetError(
            f"{sample.image_path}: the image is {error.size[1]}x{error.size[0]} px, but was "
            f"{sample.width}x{sample.height} px when the dataset was {was_read}; {next_step}"
        ) from error
