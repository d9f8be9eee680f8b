"""Images that are drawn by their names: a split where a dataset has none, and a fraction.

The side of an image depends only on the name of its file, but near-duplicates stay on one side:
the side of the image whose name has the lowest rank, a second hash. A new image in a group of n
decides the side of the group with probability 1 / (n + 1), otherwise it joins them; no other group
moves. Fingerprints are cached between runs.
"""

import hashlib
import logging
import os
from collections.abc import Sequence
from functools import partial

import numpy as np

from duet.utils.data.image.decoding import read_as
from duet.utils.data.image.fingerprint import (
    NO_FINGERPRINT,
    UNKNOWN,
    Fingerprint,
    fingerprint_of,
    join_equal,
    near_duplicates,
)
from duet.utils.data.sources.image_sources import ImageSource
from duet.utils.data.sources.samples import read_image_bytes
from duet.utils.data.sources.scan import Memory, require_same_names, scan_shards
from duet.utils.errors import DatasetError, UserError
from duet.utils.files.array_cache import Arrays, state_of_files
from duet.utils.processes.world import ALONE, World
from duet.utils.text import count

WORK = "looking for near-duplicates"
MOST_DECODED = 50_000_000  # per image: 150 MB in each thread
_MOST_THREADS = 8
_COPY = ".rf."  # Roboflow calls the augmented copies of a.jpg a_jpg.rf.HASH.jpg
_UNIT = 2**48
_ENCODING = "utf-8", "surrogateescape"  # of names, in each locale

log = logging.getLogger("data")


def drawn_part(
    images: Sequence[ImageSource], train_part: float | str, split: str, world: World
) -> list[ImageSource]:
    """Return the images that were drawn for training, or the rest, for validation."""
    names = [image.path.name for image in images]
    groups = group_copies(names, read_fingerprints(images, world))
    is_train = draw_training(names, groups, train_part)
    drawn = [images[index] for index in np.flatnonzero(is_train == (split == "train")).tolist()]
    if world.process.is_main:
        total = count(len(images), "image")
        num_alike = len(groups) - len(np.unique(groups))
        alike = f"; {num_alike:,} stay with another that looks alike" if num_alike else ""
        log.info("%s: %d of %s, by --split %s%s", split, len(drawn), total, train_part, alike)
    return drawn


def draw_training(names: Sequence[str], groups: np.ndarray, train_part: float | str) -> np.ndarray:
    """Return which images are for training, (N,) bool: about `train_part` of all groups.

    Of "K/N", all but the K-th of N equal ranges of hashes.

    Args:
        names: file names of the images, without folders.
        groups: as of `group_copies`.

    DatasetError: one side would be empty.
    """
    hashes = np.array([_hashes_of(name) for name in names], np.int64).reshape(-1, 2)
    places, ranks = hashes.T
    # Sorted by group, and in it by rank: the first of each group speaks for it.
    order = np.lexsort((ranks, groups))
    numbers, first, group_of = np.unique(groups[order], return_index=True, return_inverse=True)
    if isinstance(train_part, str):
        fold, number = map(int, train_part.split("/"))
        speaks = places[order][first] * number // _UNIT != fold - 1
    else:
        speaks = places[order][first] < train_part * _UNIT
    is_train = np.empty(len(names), bool)
    is_train[order] = speaks[group_of]
    if is_train.all() or not is_train.any():
        side = "validation" if is_train.any() else "training"
        raise DatasetError(
            f"--split {train_part} leaves no image for {side}: {count(len(names), 'image')}, "
            f"{len(numbers)} when near-duplicates count once; use another fraction, add images, or "
            "name a folder of images for validation in a dataset YAML"
        )
    return is_train


def group_copies(names: Sequence[str], fingerprints: Sequence[Fingerprint]) -> np.ndarray:
    """Return a number for each image, (N,) int64: near-duplicates and augmented copies have one."""
    origins = [_original_of(name) for name in names]
    copied = {origin for name, origin in zip(names, origins, strict=True) if _COPY in name}
    keys = [_hashes_of(name)[0] + 1 if origin in copied else UNKNOWN
            for name, origin in zip(names, origins, strict=True)]  # fmt: skip
    return join_equal(near_duplicates(fingerprints), np.array(keys, np.uint64))


def _original_of(name: str) -> str:
    """Return what a file and its augmented copies by Roboflow have in common."""
    before, _, after = name.partition(_COPY)
    return (before if before and after else name).replace(".", "_")


def _hashes_of(name: str) -> tuple[int, int]:
    """Return place and rank of an image, 48 bits each; augmented copies share them."""
    # Other hashes than in `place_of`: --fraction takes a part of either side.
    digest = hashlib.sha256(b"split\0" + _original_of(name).encode(*_ENCODING)).digest()
    return int.from_bytes(digest[:6], "big"), int.from_bytes(digest[6:12], "big")


def place_of(name: str) -> float:
    """Return the place of a file's name among all names, from 0 to below 1."""
    digest = hashlib.sha256(name.encode(*_ENCODING)).digest()
    return int.from_bytes(digest[:6], "big") / _UNIT


def read_fingerprints(images: Sequence[ImageSource], world: World = ALONE) -> list[Fingerprint]:
    """Return the fingerprint of each image, on all ranks; none for an unreadable file.

    They are cached until a file changes. DatasetError: the ranks have different images.
    """
    require_same_names([image.path.name for image in images], world)

    def state(image: ImageSource, now_ns: int) -> bytes | None:
        place = image.place
        file = state_of_files((str(image.path if place is None else place.path),), now_ns)
        return None if file is None else file + repr(place and place[1:]).encode()

    def join(found: list[Fingerprint]) -> Arrays:
        return {"rows": np.array(found, np.uint64).reshape(-1, 2).view(np.int64)}

    def read_all() -> Arrays:
        return scan_shards(WORK, images, read_fingerprint, join, world, _MOST_THREADS)

    def is_old(kept: Arrays) -> bool:
        unknown = np.flatnonzero(kept["rows"][:, 1] == UNKNOWN).tolist()
        return any(read_fingerprint(images[index]).look != UNKNOWN for index in unknown)

    folders = {os.path.abspath(image.path.parent) for image in images}
    memory = Memory.of("fingerprints", *sorted(folders))
    kept = memory.recall(images, state, is_old, read_all, world)
    return [Fingerprint(*row) for row in kept["rows"].view(np.uint64).tolist()]


def read_fingerprint(image: ImageSource) -> Fingerprint:
    try:
        content = read_image_bytes(image.path, image.place)
    except DatasetError:  # the scan of the labels names it
        return NO_FINGERPRINT
    return read_as(image.path, partial(fingerprint_of, content, MOST_DECODED))


def choose_part(images: Sequence[ImageSource], fraction: float) -> list[ImageSource]:
    """Return about this fraction of the images, in their order: the lowest hashes.

    An image is chosen by the name of its file alone. UserError: no image is left.
    """
    chosen = [image for image in images if place_of(image.path.name) < fraction]
    if not chosen:
        raise UserError(
            f"--fraction {fraction:g}: none of {count(len(images), 'image')} is left; use a larger "
            "one"
        )
    return chosen
