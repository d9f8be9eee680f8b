"""A dataset of files -> a new folder of record files, and the YAML that names them."""

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

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
from duet.utils.data.sources.samples import Sample, read_image_bytes
from duet.utils.errors import DatasetError
from duet.utils.files.atomic import new_folder
from duet.utils.geometry.boxes import without_outlines
from duet.utils.progress import Progress

_FEWEST_POINTS = 3  # in a polygon; fewer numbers make a box


def pack_samples(
    splits: Mapping[str, Sequence[Sample]],
    class_names: Sequence[str],
    yaml_path: Path,
    file_bytes: int,
    annotated: Set[Path] = frozenset(),
    merge: Mapping[str, str] | None = None,
) -> None:
    """Write a dataset YAML into a new folder, and for each split a folder of record files.

    Args:
        splits: the usable samples of each split, which lie in files of their own.
        yaml_path: in a folder that does not exist; it appears when all is written.
        file_bytes: a record file ends before the image that would make it larger.
        annotated: images whose labels are in no label file, and are written as one has them.
        merge: names that count as another class.

    DatasetError: an image that cannot be packed, or a folder that cannot be written.
    """
    depth = base_depth([sample.image_path for samples in splits.values() for sample in samples])
    entries = {
        split: [_entry(sample, depth, annotated) for sample in samples]
        for split, samples in splits.items()
    }
    with new_folder(yaml_path.parent) as folder:
        for split, samples in splits.items():
            _pack_split(folder / split, samples, entries[split], file_bytes)
        text = dataset_yaml_text({split: split for split in splits}, class_names, merge)
        (folder / yaml_path.name).write_text(text, encoding="utf-8")


def base_depth(image_paths: Sequence[Path]) -> int:
    """Return how many leading parts of the absolute paths the images' names lack.

    They are common to all paths and end before the last folder `images` of each: names differ,
    and their labels lie where the files' do.
    """
    folders = {_absolute_parts(path)[:-1] for path in image_paths}
    depth = len(os.path.commonprefix(list(folders)))
    for parts in folders:
        if "images" in parts:
            depth = min(depth, len(parts) - 1 - parts[::-1].index("images"))
    return depth


def _absolute_parts(path: Path) -> tuple[str, ...]:
    return Path(os.path.abspath(path)).parts


def _entry(sample: Sample, depth: int, annotated: Set[Path]) -> ImageEntry:
    """Return the index entry of a sample; DatasetError if it cannot be packed."""
    path = sample.image_path
    try:
        if path in annotated:
            labels: bytes | None = label_text(sample)
        else:
            labels = read_label_bytes(Path(label_file_of(path.as_posix())))
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


def label_text(sample: Sample) -> bytes:
    """Return the labels of a sample as a label file.

    A line has a box, which is read bit for bit, or an outline around which the box lies.
    """
    lines: list[str] = []
    boxes = sample.boxes_cxcywh_norm.astype(np.float64)
    polygons = sample.polygons_norm or without_outlines(len(boxes))
    for index, label in enumerate(sample.class_index.tolist()):
        outline = polygons.outline(index).astype(np.float64)
        encloses = len(outline) >= _FEWEST_POINTS and np.ptp(outline, axis=0).min() > 0
        numbers = outline if encloses else boxes[index]
        lines.append(" ".join([str(label), *map(repr, numbers.ravel().tolist())]))
    return "".join(f"{line}\n" for line in lines).encode()
