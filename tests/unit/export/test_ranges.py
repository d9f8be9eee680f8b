"""Ranges of maps against NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from utils.errors import UserError
from utils.export.ranges import BINS, MOST_VALUES, find_ranges, histogram


def doubling(size: int) -> onnx.ModelProto:
    """A graph that returns twice its input (N,)."""
    two = helper.make_tensor("two", TensorProto.FLOAT, (), [2.0])
    node = helper.make_node("Mul", ["x", "two"], ["doubled"], "node")
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (size,))]
        for name in ("x", "doubled")
    )
    graph = helper.make_graph([node], "doubling", inputs, outputs, [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ranges_of(*arrays: np.ndarray) -> dict[str, tuple[float, float]]:
    def images() -> Iterator[np.ndarray]:
        yield from (array.astype(np.float32) for array in arrays)

    return dict(find_ranges(doubling(len(arrays[0])), ["x", "doubled"], images))


def test_values_without_outliers_keep_their_whole_range() -> None:
    ranges = ranges_of(np.linspace(-1, 3, 5000), np.linspace(-2, 1, 5000))
    step = 5 / BINS
    assert ranges["x"] == pytest.approx((-2, 3), abs=step)
    assert ranges["doubled"] == pytest.approx((-4, 6), abs=2 * step)


def test_one_value_in_a_million_is_cut_off() -> None:
    values = np.linspace(0, 1, 50_000)
    values[-1] = 1000
    many = [np.linspace(0, 1, 50_000)] * 9
    low, high = ranges_of(values, *many)["x"]
    assert low == 0
    assert 1 <= high < 1 + 2 * 1000 / BINS  # the second bin ends there


def test_zero_is_always_within() -> None:
    """Or the padding of a convolution, which is 0, would be rounded."""
    assert ranges_of(np.linspace(5, 6, 100))["x"][0] == 0
    assert ranges_of(np.linspace(-6, -5, 100))["x"][1] == 0


def test_map_of_zeros_has_a_range_that_is_not_empty() -> None:
    low, high = ranges_of(np.zeros(10))["x"]
    assert low == 0 < high < 1e-3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_value_that_is_no_number_is_an_error(value: float) -> None:
    with pytest.raises(UserError, match=r"not finite \(map x"):
        ranges_of(np.array([0, value, 1]))


def test_every_column_of_a_large_map_counts() -> None:
    columns = np.tile(np.arange(10, dtype=np.float32), MOST_VALUES * 5 // 10)  # 5 values a step
    counts = histogram(columns, 0, 10)
    assert np.count_nonzero(counts) == 10


def test_large_map_is_counted_in_parts() -> None:
    counts = histogram(np.linspace(0, 1, 20 * MOST_VALUES, dtype=np.float32), 0, 1)
    assert 0.9 * MOST_VALUES < counts.sum() <= 1.1 * MOST_VALUES
    assert counts.min() > 0.9 * counts.mean()  # from all places alike
