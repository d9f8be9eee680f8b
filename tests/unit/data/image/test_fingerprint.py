"""Near-duplicates among images: what keeps a look, what changes it, and which are grouped."""

import cv2
import numpy as np
import pytest

from duet.utils.data.image.fingerprint import (
    MAX_BITS,
    UNKNOWN,
    Fingerprint,
    duplicates,
    fingerprint_of,
    look_of,
    near_duplicates,
)
from tests.environments import shared_path

NUM_PHOTOS = 24


def encoded(image, suffix=".jpg", quality=90):
    return cv2.imencode(suffix, image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].ravel()


def num_bits(one, other):
    return (one ^ other).bit_count()


@pytest.fixture(scope="module")
def photos():
    paths = sorted(shared_path("data/coco256/images/val2017").glob("*.jpg"))[:NUM_PHOTOS]
    return [cv2.imread(str(path)) for path in paths]


COPIES = {
    "encoded again": lambda image: encoded(image, quality=40),
    "a PNG": lambda image: encoded(image, ".png"),
    "half as large": lambda image: encoded(cv2.resize(image, None, fx=0.5, fy=0.5)),
    "stretched": lambda image: encoded(cv2.resize(image, (416, 416))),
    "cropped by pixels": lambda image: encoded(image[3:-3, 3:-3]),
    "brighter": lambda image: encoded(cv2.add(image, (20, 20, 20, 0))),
    "darker": lambda image: encoded((image * 0.75).astype(np.uint8)),
}


@pytest.mark.parametrize("change", COPIES)
def test_copies_of_a_photo_look_alike(photos, change):
    for photo in photos:
        look = fingerprint_of(COPIES[change](photo)).look
        assert num_bits(look, look_of(photo)) <= MAX_BITS


def test_photos_and_their_mirror_images_do_not_look_alike(photos):
    looks = [look_of(photo) for photo in photos]
    looks += [look_of(np.ascontiguousarray(photo[:, ::-1])) for photo in photos]
    pairs = [num_bits(one, other) for i, one in enumerate(looks) for other in looks[:i]]
    assert min(pairs) > MAX_BITS


def test_fingerprint_is_the_same_on_every_machine():
    """A drawn split must not change: fingerprints may be kept, and ranks may differ in CPU."""
    y, x = np.mgrid[:90, :131]
    image = np.dstack([x * y, x * x + 3 * y, 5 * x + y * y]).astype(np.uint8)
    assert look_of(image) == 0x251503A53BB53F7


def ramp():
    return np.repeat(np.arange(0, 256, 4, dtype=np.uint8)[None], 64, axis=0)


FLAT = {
    "black": np.zeros((64, 64, 3), np.uint8),
    "grey": np.full((50, 90, 3), 128, np.uint8),
    "a ramp": np.dstack([ramp()] * 3),
    "noise": np.random.default_rng(0).integers(126, 130, (400, 600, 3), np.uint8),
}


def test_flat_images_are_compared_by_their_bytes():
    files = [encoded(image, suffix) for image in FLAT.values() for suffix in (".jpg", ".png")]
    prints = [fingerprint_of(file) for file in files]
    assert [x.look for x in prints] == [UNKNOWN] * len(files)
    assert near_duplicates(prints).tolist() == list(range(len(files)))
    assert near_duplicates([prints[0], prints[1], prints[0]]).tolist() == [0, 1, 0]


def test_image_over_the_limit_gets_no_look(photos):
    height, width = photos[0].shape[:2]
    file = encoded(photos[0])
    assert fingerprint_of(file, height * width).look != UNKNOWN
    assert fingerprint_of(file, height * width - 1).look == UNKNOWN


def looks(*numbers):
    return [Fingerprint(index + 1, number) for index, number in enumerate(numbers)]


def test_near_duplicates_tolerate_exactly_max_bits_anywhere():
    """Each look is far from the others; a copy has bits flipped in any parts of it."""
    generator = np.random.default_rng(0)
    bases = generator.integers(1, 1 << 63, 400).tolist()

    def flipped(number, count):
        bits = generator.choice(64, count, replace=False).tolist()
        return number ^ sum(1 << bit for bit in bits)

    for count, found in ((MAX_BITS, 0), (MAX_BITS + 1, 400)):
        groups = near_duplicates(looks(*bases, *(flipped(base, count) for base in bases)))
        np.testing.assert_array_equal(groups[:400], np.arange(400))
        np.testing.assert_array_equal(groups[400:], np.arange(found, found + 400))


def test_near_duplicate_groups_are_transitive():
    steps = [(1 << (4 * number)) - 1 for number in range(1, 9)]  # 4 bits more each
    assert near_duplicates(looks(*steps)).tolist() == [0] * 8


def test_equal_bytes_are_duplicates_but_unread_files_not():
    prints = [Fingerprint(7, 1), Fingerprint(UNKNOWN, UNKNOWN), Fingerprint(9, 1),
              Fingerprint(7, UNKNOWN), Fingerprint(UNKNOWN, UNKNOWN)]  # fmt: skip
    assert duplicates(prints).tolist() == [0, 1, 2, 0, 4]
    assert near_duplicates(prints).tolist() == [0, 1, 0, 0, 4]
    assert near_duplicates([]).tolist() == []


def test_thousands_of_close_fingerprints_form_one_group():
    """20,000 looks within 2^16 would have 10^8 pairs; each is compared with a few."""
    numbers = np.random.default_rng(0).choice(1 << 16, 20_000, replace=False) + (1 << 40)
    assert set(near_duplicates(looks(*numbers.tolist())).tolist()) == {0}
