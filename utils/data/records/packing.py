"""A dataset of files -> a new folder of record files, and the YAML that names them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from duet.utils.atomic_files import new_folder
from duet.utils.data.loading.reading import read_image_bytes
from duet.utils.data.records.layout import MAX_RECORD_BYTES, SUFFIX, write_records
from duet.utils.data.records.record_images import (
    MAX_INDEX_BYTES,
    BrokenIndexError,
    ImageEntry,
    check_entry,
    encode_entry,
    encode_index,
)
from duet.utils.data.sources.dataset_yaml import dataset_yaml_text
from duet.utils.data.sources.label_file import BrokenLabelError, label_file_of, read_label_bytes
from duet.utils.data.sources.samples import Sample
from duet.utils.errors import DatasetError
from duet.utils.polygons import without_outlines
from duet.utils.progress import Progress
from duet.utils.text import count

_FEWEST_POINTS = 3  # in a polygon; fewer numbers make a box

log = logging.getLogger("records")


def pack_samples(
    splits: Mapping[str, Sequence[Sample]],
    class_names: Sequence[str],
    yaml_path: Path,
    file_bytes: int,
    annotated: Set[Path] = frozenset(),
) -> None:
    """Write a dataset YAML into a new folder, and for each split a folder of record files.

    Args:
        splits: the usable samples of each split, which lie in files of their own.
        yaml_path: in a folder that does not exist; it appears when all is written.
        file_bytes: a record file ends before the image that would make it larger.
        annotated: images whose labels are in no label file, and are written as one has them.

    Raises:
        DatasetError: an image that cannot be packed, or a folder that cannot be written.
    """
    depth = base_depth([sample.image_path for samples in splits.values() for sample in samples])
    losses: list[tuple[int, int]] = [(0, 0)]  # outlines that were moved, and that were dropped
    entries = {
        split: [_entry(sample, depth, annotated, losses) for sample in samples]
        for split, samples in splits.items()
    }
    moved, dropped = map(sum, zip(*losses, strict=True))
    if moved or dropped:
        text = "outlines must lie within their boxes: %s moved by up to a pixel, %s left out"
        log.warning(text, count(moved, "outline"), count(dropped, "outline"))
    with new_folder(yaml_path.parent) as folder:
        for split, samples in splits.items():
            _pack_split(folder / split, samples, entries[split], file_bytes)
        text = dataset_yaml_text({split: split for split in splits}, class_names)
        (folder / yaml_path.name).write_text(text, encoding="utf-8")


def base_depth(image_paths: Sequence[Path]) -> int:
    """Return how many leading parts of the absolute paths are left out of the images' names.

    These parts are common to all paths and end before the last folder `images` of each: names
    differ, and their labels lie where those of the files do.
    """
    folders = {_absolute_parts(path)[:-1] for path in image_paths}
    depth = len(os.path.commonprefix(list(folders)))
    for parts in folders:
        if "images" in parts:
            depth = min(depth, len(parts) - 1 - parts[::-1].index("images"))
    return depth


def _absolute_parts(path: Path) -> tuple[str, ...]:
    return Path(os.path.abspath(path)).parts


def _entry(
    sample: Sample, depth: int, annotated: Set[Path], losses: list[tuple[int, int]]
) -> ImageEntry:
    """Return the index entry of a sample; DatasetError if it cannot be packed."""
    path = sample.image_path
    try:
        if path in annotated:
            labels: bytes | None
            labels, moved, dropped = label_text(sample)
            losses.append((moved, dropped))
        else:
            labels = read_label_bytes(Path(label_file_of(str(path))))
        name = "/".join(_absolute_parts(path)[depth:])
        entry = ImageEntry(name, sample.height, sample.width, labels)
        check_entry(entry)
        if path.stat().st_size > MAX_RECORD_BYTES:
            raise BrokenIndexError(f"it has more than {MAX_RECORD_BYTES} bytes")
    except BrokenLabelError as error:
        raise DatasetError(f"{path}: cannot be packed: its label file {error}") from error
    except BrokenIndexError as error:
        raise DatasetError(f"{path}: cannot be packed: {error}; change it or its name") from error
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error
    return entry


def _pack_split(
    folder: Path, samples: Sequence[Sample], entries: Sequence[ImageEntry], file_bytes: int
) -> None:
    folder.mkdir()
    with Progress(len(samples), f"packing {folder.name}", "images") as progress:

        def records(part: slice) -> Iterator[np.ndarray]:
            for sample in samples[part]:
                yield read_image_bytes(sample.image_path, sample.record)
                progress.update()
            yield np.frombuffer(encode_index(entries[part]), np.uint8)

        for number, part in enumerate(_plan_files(samples, entries, file_bytes)):
            path = folder / f"PART_{number:05d}{SUFFIX}"
            write_records(path, part.stop - part.start + 1, records(part))


def _plan_files(
    samples: Sequence[Sample], entries: Sequence[ImageEntry], file_bytes: int
) -> Iterator[slice]:
    """Yield which samples go into which file, in their order; at least one into each."""
    start = image_bytes = index_bytes = 0
    for position, (sample, entry) in enumerate(zip(samples, entries, strict=True)):
        num_bytes, num_index_bytes = sample.image_path.stat().st_size, len(encode_entry(entry))
        image_bytes += num_bytes
        index_bytes += num_index_bytes
        # Half of what readers accept leaves room for the index's own start.
        too_large = image_bytes + index_bytes > file_bytes or index_bytes > MAX_INDEX_BYTES // 2
        if too_large and position > start:
            yield slice(start, position)
            start, image_bytes, index_bytes = position, num_bytes, num_index_bytes
    yield slice(start, len(samples))


def label_text(sample: Sample) -> tuple[bytes, int, int]:
    """Return the labels of a sample as a label file; classes and boxes are read bit for bit.

    A line has a box or an outline, and an outline's box is the smallest around it. Where the box
    of an object differs by a pixel at most, the outline's outermost points are moved to its edges.
    Where it differs by more, the object is written as a box.

    Returns:
        The text, and how many outlines had a point moved, and how many were left out.
    """
    lines: list[str] = []
    moved = dropped = 0
    boxes = sample.boxes_cxcywh_norm.astype(np.float64)
    pixel = 1 / np.array([sample.width, sample.height], np.float64)
    polygons = sample.polygons_norm or without_outlines(len(boxes))
    for index, label in enumerate(sample.class_index.tolist()):
        outline, numbers = polygons.outline(index), boxes[index]
        written = _fitted(outline, numbers, pixel)
        if written is not None:
            moved += bool((written.astype(np.float32) != outline).any())
            numbers = written
        else:
            dropped += len(outline) > 0
        lines.append(" ".join([str(label), *map(repr, numbers.ravel().tolist())]))
    return "".join(f"{line}\n" for line in lines).encode(), moved, dropped


def _fitted(outline: np.ndarray, box_cxcywh: np.ndarray, pixel: np.ndarray) -> np.ndarray | None:
    """Return an outline (K, 2) float64 with exactly a box around it; None if that cannot be.

    Args:
        outline: (K, 2) float32.
        box_cxcywh: (4,) float64 of float32 values, of the same unit.
        pixel: (2,) how far a point may be moved, in x and y.
    """
    if len(outline) < _FEWEST_POINTS:
        return None
    points = outline.astype(np.float64)
    for axis in (0, 1):
        values, centre, side = points[:, axis], box_cxcywh[axis], box_cxcywh[axis + 2]
        low, high = outline[:, axis].min(), outline[:, axis].max()
        edges = _edges(low, high, np.float32(centre), np.float32(side))
        if edges is None:
            edges = centre - side / 2, centre + side / 2  # exact: these are float32 values
            if max(abs(edges[0] - low), abs(edges[1] - high)) > pixel[axis]:
                return None
            values = np.clip(values, *edges)
        points[:, axis] = np.select(
            [outline[:, axis] == low, outline[:, axis] == high], edges, values
        )
    return points


def _edges(
    low: np.float32, high: np.float32, centre: np.float32, side: np.float32
) -> tuple[float, float] | None:
    """Return the edges that are rounded to `low` and `high`, and whose box to `centre` and `side`.

    The box was rounded from the edges as they were, and these were rounded too: what is left of
    them gives another box. The four roundings are bounds of the two edges, of their sum and of
    their difference; a pair between the bounds is returned, None if there is none.
    """
    (low_from, low_to), (high_from, high_to) = _rounded_to(low), _rounded_to(high)
    (sum_from, sum_to), (side_from, side_to) = 2 * _rounded_to(centre), _rounded_to(side)
    first = max(low_from, sum_from - high_to, high_from - side_to, (sum_from - side_to) / 2)
    last = min(low_to, sum_to - high_from, high_to - side_from, (sum_to - side_from) / 2)
    left = (first + last) / 2
    first = max(high_from, sum_from - left, side_from + left)
    last = min(high_to, sum_to - left, side_to + left)
    right = (first + last) / 2
    box = np.float32((left + right) / 2), np.float32(right - left)
    read = (np.float32(left), np.float32(right), *box)
    return (left, right) if read == (low, high, centre, side) else None


def _rounded_to(value: np.float32) -> np.ndarray:
    """Return between which float64 numbers all are rounded to a float32, (2,)."""
    ends = np.array([-np.inf, np.inf], np.float32)
    around = np.nextafter(value, ends, dtype=np.float32)
    return (around.astype(np.float64) + float(value)) / 2
