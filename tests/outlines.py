"""Polygons for tests: made of points, and compared; samples with them too."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from duet.utils.data.sources.samples import Sample
from duet.utils.geometry.boxes import Polygons, starts_of


def make_polygons(outlines: Sequence[np.ndarray], dtype: type = np.float64) -> Polygons:
    """Return the outlines (K, 2) of some objects; K is 0 of one without a polygon."""
    points = [np.reshape(np.asarray(outline, dtype), (-1, 2)) for outline in outlines]
    return Polygons(np.concatenate(points), starts_of(np.array([len(part) for part in points])))


def assert_same_polygons(found: Polygons, expected: Polygons) -> None:
    for name in ("points_xy", "starts"):
        value, wanted = getattr(found, name), getattr(expected, name)
        assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape), name
        np.testing.assert_array_equal(value, wanted, err_msg=name)


def assert_same_samples(found: Sequence[Sample], expected: Sequence[Sample]) -> None:
    """Require the same fields of each, in type, dtype, shape and value."""
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        for field in dataclasses.fields(Sample):
            value, wanted = getattr(mine, field.name), getattr(theirs, field.name)
            assert type(value) is type(wanted), field.name
            if isinstance(wanted, Polygons):
                assert_same_polygons(value, wanted)
                continue
            np.testing.assert_array_equal(value, wanted, err_msg=field.name)
            if isinstance(wanted, np.ndarray):
                assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
