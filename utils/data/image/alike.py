"""Which of many images are near-duplicates, or duplicates.

Before: `fingerprint.py`. After: `utils/data/sources/drawn_split.py`, and the check of a dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from utils.data.image.fingerprint import UNKNOWN, Fingerprint

# Measured on coco256 and bccd, 620 photos: re-encoded, resized, darker and noisy copies, and those
# that lack 4 pixels a side, differ in at most 6 bits; of 98,706 pairs of photos, one, two frames
# of the same slide. The next pair differs in 14.
MAX_BITS = 6
# Where at most 7 bits differ, one of these parts of a look differs in at most 1.
_PARTS, _PART_BITS = 4, 16
# Looks of equal parts that one look is compared with: without end, time would grow as the square.
_MOST_COMPARED = 64


def near_duplicates(fingerprints: Sequence[Fingerprint]) -> np.ndarray:
    """Return a number for each image, (N,) int64; images of one number look alike, or are equal.

    The number is the index of the first of the group. If A is like B and B is like C, all three
    are one group. An image without a look is only in the group of its equals. Time is
    linear in the images, except for the sorting.
    """
    looks = np.array([x.look for x in fingerprints], np.uint64)
    groups = _Groups(join_equal(duplicates(fingerprints), looks))
    known, first = np.unique(looks[looks != UNKNOWN], return_index=True)
    first = np.flatnonzero(looks != UNKNOWN)[first]
    for one, other in _close_pairs(known):
        groups.join(first[one], first[other])
    return groups.numbers


def duplicates(fingerprints: Sequence[Fingerprint]) -> np.ndarray:
    """Return a number for each image as `near_duplicates`, of those whose bytes are equal."""
    contents = np.array([x.content for x in fingerprints], np.uint64)
    return join_equal(np.arange(len(fingerprints)), contents)


def join_equal(groups: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return groups as of `near_duplicates` after joining those of images with equal keys.

    Args:
        keys: (N,) uint64; those that are `UNKNOWN` equal no other.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    equal = (ordered[1:] == ordered[:-1]) & (ordered[1:] != UNKNOWN)
    joined = _Groups(groups)
    joined.join(order[1:][equal], order[:-1][equal])
    return joined.numbers


class _Groups:
    """Sets of the numbers 0 to N - 1, each named after its lowest."""

    def __init__(self, numbers: np.ndarray):
        self.numbers = numbers.copy()

    def join(self, one: np.ndarray, other: np.ndarray) -> None:
        """Join the sets of one[i] and other[i], for each i."""
        while True:
            one, other = self.numbers[one], self.numbers[other]
            lower, higher = np.minimum(one, other), np.maximum(one, other)
            differ = lower < higher
            if not differ.any():
                return
            one, other = lower[differ], higher[differ]
            np.minimum.at(self.numbers, other, one)
            self._follow()

    def _follow(self) -> None:
        """Make each number point directly to the lowest of its set."""
        while (after := self.numbers[self.numbers] < self.numbers).any():
            self.numbers[after] = self.numbers[self.numbers[after]]


def _close_pairs(looks: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of different looks, two arrays of indices, that differ in at most `MAX_BITS`.

    Source: Norouzi, Punjani, Fleet 2012, "Fast search in Hamming space with multi-index hashing".
    """
    flips = np.uint64(1) << np.arange(64 - _PART_BITS, 64, dtype=np.uint64)
    for part in range(_PARTS):
        turned = _turned(looks, part * _PART_BITS)
        order = np.argsort(turned)
        for flip in (np.uint64(0), *flips):
            yield from _pairs_of_part(looks[order], turned[order], flip, order)


def _turned(looks: np.ndarray, bits: int) -> np.ndarray:
    """Return looks turned to the left, so that another part is the highest."""
    return (looks << np.uint64(bits)) | (looks >> np.uint64(64 - bits)) if bits else looks


def _pairs_of_part(
    looks: np.ndarray, turned: np.ndarray, flip: np.uint64, order: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the close pairs whose highest parts differ in `flip`; `turned` is sorted."""
    wanted = turned ^ flip
    low = wanted >> np.uint64(64 - _PART_BITS) << np.uint64(64 - _PART_BITS)
    high = low | np.uint64((1 << (64 - _PART_BITS)) - 1)
    nearest = np.searchsorted(turned, wanted)
    begin = np.maximum(np.searchsorted(turned, low), nearest - _MOST_COMPARED // 2)
    end = np.minimum(np.searchsorted(turned, high, "right"), nearest + _MOST_COMPARED // 2)
    one = np.flatnonzero(begin < end)
    while len(one):
        other = begin[one]
        close = _num_bits(looks[one] ^ looks[other]) <= MAX_BITS
        if close.any():
            yield order[one[close]], order[other[close]]
        begin[one] += 1
        one = one[begin[one] < end[one]]


def _num_bits(numbers: np.ndarray) -> np.ndarray:
    """Return how many bits are set in each number, (N,) uint64."""
    return np.unpackbits(numbers.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1, dtype=np.uint8)
