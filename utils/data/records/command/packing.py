"""A dataset of files -> record files and the YAML that names them.

Before: `sources/labels.py::scan_images`. After: `sources/record_images.py`, which reads them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from backend.words import count
from utils.data.loading.reading import read_image_bytes
from utils.data.records.command.folders import dataset_yaml_text, new_folder
from utils.data.records.command.label_text import label_text
from utils.data.records.index import (
    MAX_INDEX_BYTES,
    BrokenIndexError,
    ImageEntry,
    check_entry,
    encode_index,
    entry_size,
)
from utils.data.records.layout import SUFFIX
from utils.data.records.reading import MAX_RECORD_BYTES
from utils.data.records.writing import write_records
from utils.data.sources.label_file import BrokenLabelError, label_file_of, read_label_bytes
from utils.data.sources.samples import Sample
from utils.errors import DatasetError
from utils.screen.progress import Progress

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
    texts = _Texts(annotated)
    entries = {
        split: [_entry(sample, depth, texts) for sample in samples]
        for split, samples in splits.items()
    }
    texts.tell_losses()
    with new_folder(yaml_path.parent) as folder:
        for split, samples in splits.items():
            _pack_split(folder / split, samples, entries[split], file_bytes)
        text = dataset_yaml_text({split: split for split in splits}, class_names)
        (folder / yaml_path.name).write_text(text, encoding="utf-8")


class _Texts:
    """The labels of samples as label files have them, and what they cannot express."""

    def __init__(self, annotated: Set[Path]):
        self._annotated = annotated
        self._moved = self._dropped = 0

    def of(self, sample: Sample) -> bytes | None:
        """Return the content of the label file; None when there is none."""
        if sample.image_path not in self._annotated:
            return read_label_bytes(Path(label_file_of(str(sample.image_path))))
        content, moved, dropped = label_text(sample)
        self._moved += moved
        self._dropped += dropped
        return content

    def tell_losses(self) -> None:
        """Log how many outlines are not packed as they were read."""
        if self._moved or self._dropped:
            log.warning(
                "a packed dataset needs each outline exactly within its box: %s moved by up to a "
                "pixel; %s further outside left out",
                count(self._moved, "outline"),
                count(self._dropped, "outline"),
            )


def _pack_split(
    folder: Path, samples: Sequence[Sample], entries: Sequence[ImageEntry], file_bytes: int
) -> None:
    folder.mkdir()
    with Progress(len(samples), f"packing {folder.name}", "images") as progress:
        for number, part in enumerate(plan_files(samples, entries, file_bytes)):
            records = _records(samples[part], entries[part], progress.update)
            path = folder / f"PART_{number:05d}{SUFFIX}"
            write_records(path, part.stop - part.start + 1, records)


def base_depth(image_paths: Sequence[Path]) -> int:
    """Return how many leading parts of the absolute paths are left out of the images' names.

    These parts are common to all paths and end before the last folder `images` of each: names
    differ, and their labels lie where those of the files do.
    """
    folders = [_absolute_parts(path)[:-1] for path in image_paths]
    depth = len(os.path.commonprefix(folders))
    for parts in set(folders):
        if "images" in parts:
            depth = min(depth, len(parts) - 1 - parts[::-1].index("images"))
    return depth


def _absolute_parts(path: Path) -> tuple[str, ...]:
    return Path(os.path.abspath(path)).parts


def _entry(sample: Sample, depth: int, texts: _Texts) -> ImageEntry:
    """Return what the index says of a sample; raise DatasetError if it cannot be packed."""
    path = sample.image_path
    name = "/".join(_absolute_parts(path)[depth:])
    try:
        entry = ImageEntry(name, sample.height, sample.width, texts.of(sample))
        check_entry(entry)
    except BrokenLabelError as error:
        raise DatasetError(f"{path}: cannot be packed: its label file {error}") from error
    except BrokenIndexError as error:
        raise DatasetError(f"{path}: cannot be packed: {error}; change it or its name") from error
    if _file_size(path) > MAX_RECORD_BYTES:
        raise DatasetError(f"{path}: cannot be packed: it has more than {MAX_RECORD_BYTES} bytes")
    return entry


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error


def plan_files(
    samples: Sequence[Sample], entries: Sequence[ImageEntry], file_bytes: int
) -> list[slice]:
    """Return which samples go into which file, in their order; at least one into each."""
    starts = [0]
    image_bytes = index_bytes = 0
    for position, (sample, entry) in enumerate(zip(samples, entries, strict=True)):
        num_bytes, num_index_bytes = _file_size(sample.image_path), entry_size(entry)
        image_bytes += num_bytes
        index_bytes += num_index_bytes
        # Half of what readers accept leaves room for the index's own start.
        too_large = image_bytes + index_bytes > file_bytes or index_bytes > MAX_INDEX_BYTES // 2
        if too_large and position > starts[-1]:
            starts.append(position)
            image_bytes, index_bytes = num_bytes, num_index_bytes
    return [slice(*bounds) for bounds in zip(starts, [*starts[1:], len(samples)], strict=True)]


def _records(
    samples: Sequence[Sample], entries: Sequence[ImageEntry], report: Callable[[], object]
) -> Iterator[np.ndarray]:
    """Yield the records of a file: the images as they are on disk, then their index."""
    for sample in samples:
        yield read_image_bytes(sample)
        report()
    yield np.frombuffer(encode_index(entries), np.uint8)
