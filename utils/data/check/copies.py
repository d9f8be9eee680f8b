"""Images that are there more than once: in two splits, or twice in one.

Before: `utils/data/image/alike.py` groups the fingerprints. After: `checking.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from utils.data.check.kinds import Finding
from utils.data.image.alike import duplicates, near_duplicates
from utils.data.image.fingerprint import Fingerprint
from utils.data.sources.drawn_split import group_copies


def find_copies(
    splits: Sequence[str], fingerprints: Sequence[Fingerprint], names: Sequence[str]
) -> list[Finding]:
    """Return a finding for each image that is a copy of one before it, in their order.

    If the other image is in an earlier split, the copy is a leak. An image that equals another one
    is not reported as alike, too. Copies that Roboflow has augmented, which --split keeps together,
    are a leak in two splits, and correct in one.

    Args:
        splits: of each image; the images of a split are adjacent.
    """
    if not fingerprints:
        return []
    equal = list(_copies(splits, duplicates(fingerprints)))
    found = [
        _finding("leak" if is_leak else "repeated_image", splits, names, image, other)
        for image, other, is_leak in equal
    ]
    leaked = {image for image, _, is_leak in equal if is_leak}
    repeated = {image for image, _, is_leak in equal if not is_leak}
    files = [os.path.basename(name) for name in names]
    for image, other, is_leak in _copies(splits, group_copies(files, fingerprints)):
        if is_leak and image not in leaked:
            found.append(_finding("near_leak", splits, names, image, other))
            leaked.add(image)
    for image, other, is_leak in _copies(splits, near_duplicates(fingerprints)):
        if not is_leak and image not in leaked | repeated:
            found.append(_finding("alike", splits, names, image, other))
    return found


def _copies(splits: Sequence[str], groups: np.ndarray) -> Iterator[tuple[int, int, bool]]:
    """Yield an image, the first one like it, and whether that is of an earlier split."""
    for image, first in enumerate(groups.tolist()):
        if image != first:
            yield image, first, splits[first] != splits[image]


def _finding(
    kind: str, splits: Sequence[str], names: Sequence[str], image: int, other: int
) -> Finding:
    text = names[other] if names[other] != names[image] else "listed twice"
    if splits[other] != splits[image]:
        text = f"in {splits[other]}: {names[other]}"
    return Finding(kind, splits[image], names[image], text, image, other)
