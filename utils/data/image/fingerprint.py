"""64-bit perceptual hashes of images, and groups of near-duplicates."""

import hashlib
import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import cv2
import numpy as np

from duet.utils.data.image.decoding import OtherSizeError, choose_reduction, decode_bytes
from duet.utils.data.image.header import BrokenImageError, check_size, read_header
from duet.utils.image_limits import MAX_PIXELS

UNKNOWN = 0  # no fingerprint: the file is unreadable, or the image is almost flat
CELLS = 32  # per side: averages of the image that the cosine transform sees
WAVES = 8  # lowest frequencies per side, without the mean
_SCALE = 1 << 10  # cosines as whole numbers, for the same bits on every machine
# Below this, half of the waves are weaker than JPEG noise, so their bits are meaningless.
_FAINT = 0.1  # grey levels of 255


class Fingerprint(NamedTuple):
    """An image file in two numbers of 64 bits; `UNKNOWN` where there is none."""

    content: int  # hash of its bytes
    look: int  # perceptual hash of its pixels: near-duplicates differ in few bits


NO_FINGERPRINT = Fingerprint(UNKNOWN, UNKNOWN)


def fingerprint_of(content: np.ndarray, max_pixels: int = MAX_PIXELS) -> Fingerprint:
    """Return the fingerprint of an image file; its look is unknown if it cannot be decoded.

    Args:
        content: (N,) uint8, the whole file.
        max_pixels: limit per image; larger ones are not decoded.
    """
    number = int.from_bytes(hashlib.sha256(content.data).digest()[:8], "big")
    try:
        size = read_header(io.BytesIO(content.data)).size
        check_size(size, max_pixels)
        image = decode_bytes(content, size, choose_reduction((min(size), min(size)), CELLS))
    except (BrokenImageError, OtherSizeError, OSError):
        return Fingerprint(number, UNKNOWN)
    return Fingerprint(number, look_of(image))


def look_of(image: np.ndarray) -> int:
    """Return the perceptual hash of an image, (H, W, 3) uint8 BGR; `UNKNOWN` for a flat one.

    Its bits tell which of the 63 lowest frequencies of the cosine transform of 32x32 grey averages
    exceed their median. All sums are whole numbers.

    Source: Zauner 2010, "Implementation and benchmarking of perceptual image hash functions".
    """
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY).astype(np.int64)
    height, width = grey.shape
    waves = (_waves_over(height) @ grey @ _waves_over(width).T).ravel()[1:]
    faint = _FAINT * height * width * (_SCALE * CELLS) ** 2 / 4
    if np.median(np.abs(waves)) < faint:
        return UNKNOWN
    bits = np.packbits(np.append(False, waves > np.median(waves)))
    return int.from_bytes(bits.tobytes(), "big")


@lru_cache(maxsize=64)
def _waves_over(side: int) -> np.ndarray:
    """Return (WAVES, side) int64, what each pixel of a side adds to each wave over the cells."""
    ends = np.arange(1, side + 1) * CELLS  # of pixels; a cell is `side` long, all are whole
    cells = np.arange(CELLS)[:, None] * side
    shared = np.minimum(ends, cells + side) - np.maximum(ends - CELLS, cells)
    angles = np.outer(np.arange(WAVES), np.arange(CELLS) + 0.5) * np.pi / CELLS
    return np.rint(_SCALE * np.cos(angles)).astype(np.int64) @ shared.clip(0)


# Measured on coco256 and bccd, 620 photos: re-encoded, resized, darker and noisy copies, and those
# that lack 4 pixels a side, differ in at most 6 bits; of 98,706 pairs of photos, one, two frames
# of the same slide. The next pair differs in 14.
MAX_BITS = 6
# Looks of two equal bytes that one look is compared with, so that time is linear.
_MOST_COMPARED = 64


def near_duplicates(fingerprints: Sequence[Fingerprint]) -> np.ndarray:
    """Return the index of the first image of its group for each image, (N,) int64.

    Images of a group look alike or are equal, directly or through others. An image without a look
    is only in the group of its equals. Time is linear, except for the sorting.
    """
    looks = np.array([x.look for x in fingerprints], np.uint64)
    groups = join_equal(duplicates(fingerprints), looks)
    known, first = np.unique(looks[looks != UNKNOWN], return_index=True)
    first = np.flatnonzero(looks != UNKNOWN)[first]
    for one, other in _close_pairs(known):
        _join(groups, first[one], first[other])
    return groups


def duplicates(fingerprints: Sequence[Fingerprint]) -> np.ndarray:
    """Return a number for each image as `near_duplicates`, of those whose bytes are equal."""
    contents = np.array([x.content for x in fingerprints], np.uint64)
    return join_equal(np.arange(len(fingerprints)), contents)


def join_equal(groups: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Join the groups, as of `near_duplicates`, of images with equal keys.

    Args:
        keys: (N,) uint64; those that are `UNKNOWN` equal no other.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    equal = (ordered[1:] == ordered[:-1]) & (ordered[1:] != UNKNOWN)
    joined = groups.copy()
    _join(joined, order[1:][equal], order[:-1][equal])
    return joined


def _join(groups: np.ndarray, one: np.ndarray, other: np.ndarray) -> None:
    """Join the groups of one[i] and other[i], for each i, in place; the lowest names them all."""
    while True:
        one, other = groups[one], groups[other]
        lower, higher = np.minimum(one, other), np.maximum(one, other)
        differ = lower < higher
        if not differ.any():
            return
        one, other = lower[differ], higher[differ]
        np.minimum.at(groups, other, one)
        while (after := groups[groups] < groups).any():  # each points to the lowest directly
            groups[after] = groups[groups[after]]


def _close_pairs(looks: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of different looks, two arrays of indices, that differ in at most `MAX_BITS`.

    Six bits lie in at most six of the eight bytes: two bytes at least are equal.

    Source: Norouzi, Punjani, Fleet 2012, "Fast search in Hamming space with multi-index hashing".
    """
    own_bytes = looks.view(np.uint8).reshape(-1, 8).astype(np.uint16)
    for first, second in combinations(range(8), 2):
        keys = own_bytes[:, first] << 8 | own_bytes[:, second]
        order = np.lexsort((looks, keys))
        for step in range(1, _MOST_COMPARED):
            one, other = order[:-step], order[step:]
            alike = keys[one] == keys[other]
            if not alike.any():
                break
            one, other = one[alike], other[alike]
            close = _num_bits(looks[one] ^ looks[other]) <= MAX_BITS
            yield one[close], other[close]


def _num_bits(numbers: np.ndarray) -> np.ndarray:
    return np.unpackbits(numbers.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1, dtype=np.uint8)
