"""Masks of an image as rows of different lengths."""

import numpy as np

from duet.utils.geometry.detections import Ragged

ROWS = [np.array([5, 6, 7]), np.array([], int), np.array([8])]


def as_lists(ragged: Ragged) -> list[list[int]]:
    return [row.tolist() for row in ragged.rows()]


def test_ragged_rows_round_trip():
    ragged = Ragged.of(ROWS, np.uint32)
    assert ragged.values.dtype == np.uint32 and ragged.lengths.dtype == np.int64
    assert as_lists(ragged) == [[5, 6, 7], [], [8]]
    assert ragged.num_rows == 3


def test_rows_can_be_taken_by_order_or_mask():
    ragged = Ragged.of(ROWS, np.uint32)
    assert as_lists(ragged.take(np.array([2, 0, 0]))) == [[8], [5, 6, 7], [5, 6, 7]]
    assert as_lists(ragged.take(np.array([False, True, True]))) == [[], [8]]
    assert ragged.take(np.array([2])).values.dtype == np.uint32


def test_rows_can_be_split_into_groups():
    groups = Ragged.of(ROWS, np.uint32).split([1, 0, 2])
    assert list(map(as_lists, groups)) == [[[5, 6, 7]], [], [[], [8]]]
    assert all(group.values.dtype == np.uint32 for group in groups)
    assert Ragged.of([], np.uint32).split([]) == []


def test_ragged_may_have_no_rows():
    nothing = Ragged.of([], np.uint32)
    assert nothing.num_rows == 0 and nothing.rows() == []
    assert nothing.take(np.zeros(0, np.int64)).values.dtype == np.uint32
