"""Polygons for tests: compared, and made of points."""

from collections.abc import Sequence

import numpy as np

from duet.utils.geometry.ragged import Polygons, starts_of


def make_polygons(outlines: Sequence[np.ndarray], dtype: type = np.float64) -> Polygons:
    """Return the outlines (K, 2) of some objects; K is 0 of one without a polygon."""
    points = [np.reshape(np.asarray(outline, dtype), (-1, 2)) for outline in outlines]
    return Polygons(np.concatenate(points), starts_of(np.array([len(part) for part in points])))


def assert_same_polygons(found: Polygons, expected: Polygons) -> None:
    for name in ("points_xy", "starts"):
        value, wanted = getattr(found, name), getattr(expected, name)
        assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape), name
        np.testing.assert_array_equal(value, wanted, err_msg=name)
