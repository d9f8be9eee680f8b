"""What the scan of a split found, cached between runs: only changed images are read again.

Before: `splits.py` says which images. After: `known_scans.py`, in the next scan of the same split.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from dataclasses import dataclass

import numpy as np

from utils.data.image.limits import MAX_SIDE
from utils.data.sources.dataset_yaml import DatasetSpec
from utils.data.sources.known_scans import NOTHING_KNOWN, KnownScans
from utils.data.sources.scan_arrays import ScanArrays, arrays_of
from utils.files.array_cache import read_arrays, version_of, write_arrays

KIND = "labels"
FEWEST_IMAGES = 500  # fewer are read as soon as a cache is
_PACKAGES = "pillow", "pi-heif"  # that read images
_READERS = "utils/data/sources/**/*.py", "utils/data/image/*.py", "utils/polygons.py"
_FORMS = {  # of each array
    name: (array.dtype, array.ndim, array.shape[1:])
    for name, array in arrays_of([])._asdict().items()
}


@dataclass(frozen=True)
class LabelCache:
    """The file of one split, by the name of all that its results depend on but the images."""

    name: str

    @staticmethod
    def of(
        dataset: DatasetSpec, split: str, fraction: float, num_classes: int, max_pixels: int
    ) -> LabelCache:
        """Return the cache of a split; `fraction` as `splits.load_split` has it."""
        entries = [*dataset.train, *dataset.val, *dataset.test]
        places = [os.path.abspath(str(entry)) for entry in entries]
        settings = places, split, dataset.train_part, fraction, num_classes, max_pixels
        digest = hashlib.blake2b(repr(settings).encode("utf-8", "surrogatepass"), digest_size=16)
        return LabelCache(digest.hexdigest())

    def read(self, num_classes: int) -> KnownScans:
        """Return what is known; nothing where the file is absent, damaged or makes no sense."""
        arrays = read_arrays(KIND, self.name, version())
        if arrays is None or not _is_sound(arrays, num_classes):
            return NOTHING_KNOWN
        return KnownScans(ScanArrays(**arrays))

    def write(self, found: ScanArrays, known: KnownScans | None) -> None:
        """Keep what was found, unless it is what was known."""
        if len(found.keys) < FEWEST_IMAGES:
            return
        if known is None or not np.array_equal(found.keys, known.arrays.keys):
            write_arrays(KIND, self.name, version(), found._asdict())


def version() -> bytes:
    """Return what changes with all that reads images and labels, packages among it."""
    return version_of(*_READERS) + " ".join(map(_package_version, _PACKAGES)).encode()


def _package_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # HEIC images are left out
        return "absent"


def _is_sound(arrays: dict[str, np.ndarray], num_classes: int) -> bool:
    """Return whether arrays can be those of a scan: whoever wrote them, no later code fails."""
    forms = {name: (array.dtype, array.ndim, array.shape[1:]) for name, array in arrays.items()}
    if forms != _FORMS:
        return False
    found = ScanArrays(**arrays)
    num_images, num_objects = len(found.keys), len(found.class_index)
    lengths = (
        (found.sizes, num_images),
        (found.num_objects, num_images),
        (found.problem_bytes, num_images),
        (found.boxes_cxcywh_norm, num_objects),
        (found.num_points, num_objects if len(found.points_norm) else 0),
    )
    sums = (
        (found.num_objects, num_objects),
        (found.num_points, len(found.points_norm)),
        (found.problem_bytes, len(found.problems)),
    )
    return (
        all(len(array) == length for array, length in lengths)
        and all(_adds_up(counts, total) for counts, total in sums)
        and _is_within(found.sizes, 0, MAX_SIDE)
        and np.array_equal(found.sizes[:, 0] == 0, found.sizes[:, 1] == 0)
        and not found.num_objects[found.sizes[:, 0] == 0].any()
        and _is_within(found.class_index, 0, num_classes - 1)
        and _is_within(found.boxes_cxcywh_norm, 0, 1)
        and _is_within(found.points_norm, 0, 1)
        and _are_texts(found)
    )


def _adds_up(counts: np.ndarray, total: int) -> bool:
    # Each one by itself: their sum may pass what an int64 holds.
    return _is_within(counts, 0, total) and int(counts.sum()) == total


def _is_within(values: np.ndarray, lowest: float, highest: float) -> bool:
    return bool(((values >= lowest) & (values <= highest)).all())  # NaN is not


def _are_texts(found: ScanArrays) -> bool:
    try:
        found.told_problems()
    except UnicodeDecodeError:
        return False
    return True
