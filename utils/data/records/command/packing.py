"""A dataset of files -> record files and the YAML that names them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from backend.words import count
from utils.data.loading.reading import read_image_bytes
from utils.data.records.command.label_text import LabelText, label_text
from utils.data.records.folders import dataset_yaml_text, new_folder
from utils.data.records.index import (
    MAX_INDEX_BYTES,
    BrokenIndexError,
    ImageEntry,
    check_entry,
    encode_entry,
    encode_index,
)
from utils.data.records.layout import SUFFIX, write_records
from utils.data.records.reading import MAX_RECORD_BYTES
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
    texts: list[LabelText] = []
    entries = {
        split: [_entry(sample, depth, annotated, texts) for sample in samples]
        for split, samples in splits.items()
    }
    moved, dropped = sum(x.num_moved for x in texts), sum(x.num_dropped for x in texts)
    if moved or dropped:
        text = (
            "outlines must lie exactly within their boxes: %s moved by up to a pixel, %s left out"
        )
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


def _entry(sample: Sample, depth: int, annotated: Set[Path], texts: list[LabelText]) -> ImageEntry:
    """Return what the index says of a sample; raise DatasetError if it cannot be packed."""
    path = sample.image_path
    try:
        if path in annotated:
            texts.append(label_text(sample))
            labels: bytes | None = texts[-1].content
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
                yield read_image_bytes(sample)
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
