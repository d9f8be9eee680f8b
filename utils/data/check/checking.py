"""A dataset -> all that the check knows of it, before any of it is shown.

Before: `dataset.load_dataset`. After: `figures.py`, `advice.py`, and the reports.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backend.words import count
from utils.data.check.class_findings import find_contradictions, find_in_classes
from utils.data.check.copies import find_copies
from utils.data.check.inspection import CheckedImage, inspect
from utils.data.check.kinds import KINDS, Finding
from utils.data.check.unpaired import find_unpaired
from utils.data.image.limits import MAX_PIXELS
from utils.data.sources.class_folders import ClassImage
from utils.data.sources.dataset_yaml import SPLITS, DatasetSpec
from utils.data.sources.labels import ImageSource, image_of
from utils.data.sources.splits import images_of
from utils.screen.progress import Progress

MOST_THREADS = 8  # each has an image of up to 150 MB


@dataclass(frozen=True)
class Check:
    """A dataset, its images and what was found."""

    dataset: DatasetSpec
    splits: Sequence[str]  # those that have images of their own
    images: Sequence[CheckedImage]  # of all splits, one behind the other
    findings: Sequence[Finding]  # by kind, in the order of KINDS; of each by image
    max_pixels: int = MAX_PIXELS  # of an image; training leaves out a larger one

    def of_kind(self, kind: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]

    @property
    def has_boxes(self) -> bool:
        """Whether it is labelled where objects lie; else images are in folders of their class."""
        return not all(isinstance(image.source, ClassImage) for image in self.images)

    @property
    def limit(self) -> list[str]:
        """The flag with which training leaves out the same images; empty by default."""
        if self.max_pixels == MAX_PIXELS:
            return []
        return ["--max-pixels", str(self.max_pixels)]

    @property
    def left_out(self) -> list[CheckedImage]:
        """The images that training does not use."""
        return [image for image in self.images if not image.is_used]

    @property
    def has_problems(self) -> bool:
        return bool(self.left_out) or any(KINDS[found.kind].is_problem for found in self.findings)


class _Listed(NamedTuple):
    split: str
    source: ImageSource


def check_dataset(dataset: DatasetSpec, max_pixels: int = MAX_PIXELS) -> Check:
    """Look at every image and label of a dataset's splits; time is linear in their number.

    Args:
        max_pixels: of an image; training leaves out a larger one.

    Raises:
        DatasetError: a split that cannot be listed at all.
    """
    splits, same = _splits_of(dataset)
    listed = [
        _Listed(split, image_of(image)) for split in splits for image in images_of(dataset, split)
    ]
    images, findings = _inspect_all(listed, len(dataset.class_names), max_pixels)
    findings += same
    copies = find_copies([image.split for image in images], [x.fingerprint for x in images],
                         [str(image.source.path) for image in images])  # fmt: skip
    findings += copies
    findings += find_contradictions(images, copies, dataset.class_names)
    findings += find_unpaired([source for _, source in listed])
    findings += _find_mixed(images, dataset.name)
    labelled = "image" if dataset.is_of_folders else "object"
    num_objects = _objects_of_splits(splits, images, dataset)
    findings += find_in_classes(dataset.class_names, num_objects, labelled)
    order = {kind: number for number, kind in enumerate(KINDS)}
    findings.sort(key=lambda found: order[found.kind])  # of one kind they stay in their order
    return Check(dataset, splits, images, findings, max_pixels)


def _splits_of(dataset: DatasetSpec) -> tuple[list[str], list[Finding]]:
    """Return the splits to look at: of two of the same images the first, and a finding."""
    seen: dict[object, str] = {}
    found = []
    for split in SPLITS:
        is_drawn = dataset.train_part is not None and split != "test"
        entries = dataset.train if is_drawn else getattr(dataset, split)
        key = (entries, split if is_drawn else "")
        if entries and (first := seen.setdefault(key, split)) != split:
            text = f"{split} names the images of {first}"
            found.append(Finding("same_images", split, dataset.name, text))
    return list(seen.values()), found


def _inspect_all(
    listed: Sequence[_Listed], num_classes: int, max_pixels: int
) -> tuple[list[CheckedImage], list[Finding]]:
    with Progress(len(listed), "checking", "images") as shown:

        def look(item: _Listed) -> tuple[CheckedImage, list[Finding]]:
            result = inspect(item.split, item.source, num_classes, max_pixels)
            shown.update()
            return result

        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
            results = list(pool.map(look, listed))
    findings = [
        finding._replace(image=number)
        for number, (_, found) in enumerate(results)
        for finding in found
    ]
    return [image for image, _ in results], findings


def _find_mixed(images: Sequence[CheckedImage], name: str) -> list[Finding]:
    """Return a finding where some objects of a dataset have an outline, and others none."""
    total = sum(len(image.class_index) for image in images)
    missing = total - sum(image.num_outlines for image in images)
    if missing in (0, total):
        return []
    return [Finding("no_outline", "", name, f"{missing:,} of {count(total, 'object')}")]


def _objects_of_splits(
    splits: Sequence[str], images: Sequence[CheckedImage], dataset: DatasetSpec
) -> dict[str, np.ndarray]:
    """Return how many objects each split has of each class, (C,)."""
    return {
        split: np.bincount(
            np.concatenate(
                [np.zeros(0, np.int64), *(x.class_index for x in images if x.split == split)]
            ),
            minlength=len(dataset.class_names),
        )
        for split in splits
    }
