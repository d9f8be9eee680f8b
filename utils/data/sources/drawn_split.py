"""Which images are for training and which for validation, where a dataset does not say.

Before: `splits.py` lists all images. After: the scan of their labels.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from utils.data.sources.labels import ImageSource, image_of


def draw_split(
    images: Sequence[Path | ImageSource], train_part: float, split: str
) -> list[Path | ImageSource]:
    """Return the images of "train", about `train_part` of all, or those of "val", the rest.

    Where an image belongs depends on the name of its file alone: others may come or go.
    """
    is_train = [place_of(image_of(image).path.name) < train_part for image in images]
    wanted = split == "train"
    return [image for image, mine in zip(images, is_train, strict=True) if mine == wanted]


def place_of(name: str) -> float:
    """Return the place of a file's name among all names, from 0 to below 1."""
    digest = hashlib.sha256(os.fsencode(name)).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
