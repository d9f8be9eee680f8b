"""Whether samples are the same, field by field."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from duet.utils.data.sources.samples import Sample
from duet.utils.geometry.ragged import Polygons
from tests.outlines import assert_same_polygons


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
