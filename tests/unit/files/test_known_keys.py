"""Keys of states: found among those that are known, or not."""

import hashlib

import numpy as np

from utils.files.known_keys import KnownKeys, key_of, keys_of

STATES = [f"state {number}".encode() for number in range(1000)]


def test_a_key_is_a_hash_of_the_state():
    assert key_of(b"a") == hashlib.blake2b(b"a", digest_size=16).digest()
    assert key_of(None) == bytes(16)


def test_keys_are_found_where_they_are_whatever_the_order():
    keys = keys_of([key_of(state) for state in STATES])
    order = np.random.Generator(np.random.Philox(0)).permutation(len(keys))
    known = KnownKeys(keys[order])
    np.testing.assert_array_equal(order[known.find(keys)], np.arange(1000))
    assert known.find(keys_of([key_of(b"another")])).tolist() == [-1]
    assert known.find(keys_of([])).shape == (0,)


def test_no_key_is_never_found():
    known = KnownKeys(keys_of([key_of(None), key_of(b"a")]))
    assert known.find(keys_of([key_of(None), key_of(b"a"), key_of(None)])).tolist() == [-1, 1, -1]
    assert KnownKeys(keys_of([])).find(keys_of([key_of(b"a")])).tolist() == [-1]


def test_one_half_alone_is_no_key():
    known = KnownKeys(np.array([[5, 1], [5, 2], [7, 1]]))
    assert known.find(np.array([[5, 1], [7, 1], [5, 3], [7, 2], [8, 1]])).tolist() == [
        0, 2, -1, -1, -1,
    ]  # fmt: skip
