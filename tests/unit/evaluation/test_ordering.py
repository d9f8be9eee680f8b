"""utils/evaluation/ordering.py: the plain sort that each order stands for."""

import numpy as np
import pytest

from utils.evaluation.ordering import descending_order, order_by_class


@pytest.mark.parametrize("num_classes", [1, 80, 300, 70_000])
@pytest.mark.parametrize("count", [0, 1, 2000])
def test_orders_are_those_of_stable_sorts(count, num_classes):
    random = np.random.Generator(np.random.Philox(count))
    scores = (random.integers(1, 100, count) / 100).astype(np.float32)  # many are equal
    class_index = random.integers(0, num_classes, count)
    found = descending_order(scores)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.argsort(-scores, kind="stable"))
    expected = np.lexsort((-scores, class_index))
    np.testing.assert_array_equal(order_by_class(class_index, scores), expected)


def test_smallest_and_largest_scores_are_in_order():
    scores = np.float32([0, 1e-45, 1e-38, 1e-30, 0.5, 1])
    assert descending_order(scores).tolist() == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    "scores",
    [np.float32([0.5, -1e-45, 0.9]), np.float32([0.5, -0.0]), np.float64([0.5, 0.9])]
    + [np.array([0.5, 0.9], np.float16), np.array([1, 2], np.int32)],
)
def test_scores_whose_bits_do_not_rise_with_them_are_refused(scores):
    with pytest.raises(AssertionError, match="score"):
        descending_order(scores)
