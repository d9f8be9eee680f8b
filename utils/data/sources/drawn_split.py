"""Which images are for training and which for validation, if a dataset does not say.

The side of an image depends only on the name of its file, but near-duplicates are kept on one side:
that of the image whose name has the lowest rank, a second hash. A new image in a group of n decides
the side of the group with a probability of 1 / (n + 1), else it joins them; no other group moves.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np

from backend.words import count
from utils.data.image.fingerprint import UNKNOWN, Fingerprint, join_equal, near_duplicates
from utils.errors import DatasetError

_COPY = ".rf."  # Roboflow calls the augmented copies of a.jpg a_jpg.rf.HASH.jpg
_UNIT = 2**48


def draw_training(names: Sequence[str], groups: np.ndarray, train_part: float) -> np.ndarray:
    """Return which images are for training, (N,) bool: about `train_part` of all groups.

    Args:
        names: of the image files, without their folders.
        groups: as of `group_copies`.

    Raises:
        DatasetError: all of them are, or none is.
    """
    hashes = np.array([_hashes_of(name) for name in names], np.int64).reshape(-1, 2)
    places, ranks = hashes.T
    # Sorted by group, and in it by rank: the first of each group speaks for it.
    order = np.lexsort((ranks, groups))
    numbers, first, group_of = np.unique(groups[order], return_index=True, return_inverse=True)
    speaks = places[order][first] < train_part * _UNIT
    is_train = np.empty(len(names), bool)
    is_train[order] = speaks[group_of]
    if is_train.all() or not is_train.any():
        side = "validation" if is_train.any() else "training"
        raise DatasetError(
            f"--split {train_part:g} leaves no image for {side}: {count(len(names), 'image')}, "
            f"{len(numbers)} when near-duplicates count once; use another fraction, add images, or "
            "name a folder of images for validation in a dataset YAML"
        )
    return is_train


def group_copies(names: Sequence[str], fingerprints: Sequence[Fingerprint]) -> np.ndarray:
    """Return a number for each image, (N,) int64: near-duplicates and augmented copies have one."""
    origins = [original_of(name) for name in names]
    copied = {origin for name, origin in zip(names, origins, strict=True) if _COPY in name}
    keys = [_hashes_of(name)[0] + 1 if origin in copied else UNKNOWN
            for name, origin in zip(names, origins, strict=True)]  # fmt: skip
    return join_equal(near_duplicates(fingerprints), np.array(keys, np.uint64))


def original_of(name: str) -> str:
    """Return what a file and its augmented copies by Roboflow have in common."""
    before, _, after = name.partition(_COPY)
    return (before if before and after else name).replace(".", "_")


def _hashes_of(name: str) -> tuple[int, int]:
    """Return the place and the rank of an image, of 48 bits each; copies have those of it."""
    # Not those of `place_of`: --fraction takes a part of either side.
    digest = hashlib.sha256(b"split\0" + os.fsencode(original_of(name))).digest()
    return int.from_bytes(digest[:6], "big"), int.from_bytes(digest[6:12], "big")


def place_of(name: str) -> float:
    """Return the place of a file's name among all names, from 0 to below 1."""
    digest = hashlib.sha256(os.fsencode(name)).digest()
    return int.from_bytes(digest[:6], "big") / _UNIT
