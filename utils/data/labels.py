"""Image paths -> samples with checked labels, and a report of what is broken.

Before: `image_files.list_images`. After: `images.read_image`, in the loader's workers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from utils.data.image_files import DatasetError
from utils.data.image_header import BrokenImageError, read_image_size
from utils.data.label_file import BrokenLabelError, label_path, read_labels

_SHOWN_PROBLEMS = 5


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class Sample:
    """One usable image and its objects."""

    image_path: Path
    height: int  # pixels, as decoded: EXIF rotation applied
    width: int
    class_index: np.ndarray  # (M,) int64
    boxes_cxcywh_norm: np.ndarray  # (M, 4) float32 in [0, 1]


class ScanReport(NamedTuple):
    """The usable samples, in the order of the paths, and a line for each problem found."""

    samples: list[Sample]
    problems: list[str]


def scan_samples(image_paths: Sequence[Path], num_classes: int) -> ScanReport:
    """Read the header and the labels of every image.

    Broken images, and images with a broken label line, are left out; repeated label rows are
    removed. Either is a line of the report that names the file and the reason. An image without
    a label file is a background: it has no objects.

    Raises:
        DatasetError: no image is usable, or none of them has any object.
    """
    with ThreadPoolExecutor(min(16, 2 * (os.cpu_count() or 1))) as pool:
        results = list(pool.map(lambda path: _scan_one(path, num_classes), image_paths))
    samples = [sample for sample, _ in results if sample is not None]
    problems = [problem for _, problem in results if problem]
    if not samples:
        raise DatasetError(
            f"none of the {len(image_paths)} images is usable:\n" + _first_lines(problems)
        )
    if not any(len(sample.class_index) for sample in samples):
        raise DatasetError(
            f"none of the {len(samples)} usable images has a labelled object; the labels of "
            f"{samples[0].image_path} belong into {label_path(samples[0].image_path)}"
        )
    return ScanReport(samples, problems)


def _scan_one(image_path: Path, num_classes: int) -> tuple[Sample | None, str]:
    labels = label_path(image_path)
    try:
        height, width = read_image_size(image_path)
        class_index, boxes, num_repeated = read_labels(labels, num_classes)
    except BrokenImageError as error:
        return None, f"{image_path}: left out: {error}"
    except BrokenLabelError as error:
        return None, f"{image_path}: left out: {labels}: {error}"
    problem = f"{labels}: {num_repeated} repeated rows removed" if num_repeated else ""
    return Sample(image_path, height, width, class_index, boxes), problem


def _first_lines(problems: Sequence[str]) -> str:
    hidden = len(problems) - _SHOWN_PROBLEMS
    more = [f"... and {hidden} more"] if hidden > 0 else []
    return "\n".join([*problems[:_SHOWN_PROBLEMS], *more])
