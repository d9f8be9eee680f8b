"""Images that are there more than once: in two splits, or twice in one.

Before: `utils/data/image/alike.py` groups the fingerprints. After: `checking.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from utils.data.check.kinds import Finding
from utils.data.image.alike import duplicates, near_duplicates
from utils.data.image.fingerprint import Fingerprint


def find_copies(
    splits: Sequence[str], fingerprints: Sequence[Fingerprint], names: Sequence[str]
) -> list[Finding]:
    """Return a finding for each image that is a copy of one before it, in their order.

    An image of an earlier split counts first: it is a leak then. Who equals another is not also
    told to look like it.

    Args:
        splits: of each image; those of one split lie one behind the other.
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
    for image, other, is_leak in _copies(splits, near_duplicates(fingerprints)):
        if image not in leaked and (is_leak or image not in repeated):
            kind = "near_leak" if is_leak else "alike"
            found.append(_finding(kind, splits, names, image, other))
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
