"""A sample -> its image, read and decoded, and its objects in pixels."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from duet.utils.data.image.decoding import Objects, OtherSizeError, decode_bytes, read_as
from duet.utils.data.image.header import BrokenImageError
from duet.utils.data.sources.image_sources import records_of
from duet.utils.data.sources.samples import RecordPlace, Sample
from duet.utils.errors import DatasetError
from duet.utils.files.regular import read_bytes
from duet.utils.geometry.boxes import cxcywh_to_xyxy
from duet.utils.geometry.detections import GroundTruth
from duet.utils.image_limits import MAX_IMAGE_BYTES


def read_image_bytes(path: Path, place: RecordPlace | None) -> np.ndarray:
    """Return the bytes of an image as on disk, (N,) uint8.

    Raises:
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
