"""The classes of an image: in order, in words, in files, in other programs."""

import numpy as np
import pytest

from duet.utils.detect.results.result import ClassScore
from tests.unit.detect.results.made import make_class_result

NAMES = ("cat", "dog", "tie", "军装", "bird", "bus", "car")
PROBABILITIES = [0.125, 0.5, 0.0625, 0.125, 0.03125, 0.15625, 0.0]
ORDER = [1, 5, 0, 3, 2]  # of equal ones the lower number first


def result(probabilities=PROBABILITIES, names=NAMES, **options):
    return make_class_result("a.jpg", probabilities, class_names=names, **options)


def test_the_five_most_probable_classes_come_in_their_order():
    found = result()
    assert found.top5.tolist() == ORDER and len(found) == 5
    assert found.names == ["dog", "bus", "cat", "军装", "tie"]
    assert found.scores.tolist() == [0.5, 0.15625, 0.125, 0.125, 0.0625]
    assert list(found)[1] == ClassScore(0.15625, 5, "bus")
    assert found.probabilities.tolist() == PROBABILITIES


def test_a_table_has_the_five_classes():
    pytest.importorskip("pandas")
    table = result().to_pandas()
    assert list(table.columns) == ["confidence", "class", "name"]
    assert table["class"].tolist() == ORDER and table["name"][0] == "dog"


def test_what_is_no_number_is_no_class():
    found = result([float("nan"), 0.5, 0.25, float("nan"), 0.125, float("inf"), 0.0])
    assert found.top5.tolist() == [1, 2, 4, 6]
    nothing = result([float("nan")] * 7)
    assert (len(nothing), nothing.words(), nothing.counted) == (0, "(no class)", [])
    np.testing.assert_array_equal(nothing.plot(), nothing.image)
