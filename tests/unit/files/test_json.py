"""utils/files/json.py: what has the form that is expected, and what stands for what is absent."""

import math

import pytest

from utils.files.json import LARGEST_COUNT, Default, complete


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (str, ["", "a"], [None, 1, ["a"]]),
        (bool, [True], [0, 1, None]),
        (int, [0, LARGEST_COUNT], [-1, LARGEST_COUNT + 1, 1.0, True, None]),
        (float, [0.5, math.inf, -3, LARGEST_COUNT], ["1", True, None, LARGEST_COUNT + 1]),
        (dict, [{}, {"a": [1]}], [[], None]),
        ([int], [[], [1, 2]], [[1, "a"], {"a": 1}, 1]),
        ({"a": int}, [{"a": 1}], [{}, {"a": 1, "b": 1}, {"a": None}, [["a", 1]]]),
        ({"a": int, str: str}, [{"a": 1}, {"a": 1, "b": "c"}], [{"b": "c"}, {"a": 1, "b": 1}]),
    ],
    ids=str,
)
def test_a_value_is_of_a_kind_or_refused(kind, good, bad):
    for value in good:
        assert complete(value, kind) == value
    for value in bad:
        with pytest.raises(ValueError):
            complete(value, kind)


def test_what_is_absent_has_its_default_at_any_depth_and_each_time_its_own():
    kind = [{"a": Default([int], []), "b": Default({"c": Default(int, 3)}, {"c": 4})}]
    one, two = complete([{}, {"a": [1], "b": {}}], kind)
    assert one == {"a": [], "b": {"c": 4}} and two == {"a": [1], "b": {"c": 3}}
    one["a"].append(1)
    assert complete([{}], kind)[0]["a"] == []


@pytest.mark.parametrize(
    ("value", "name"),
    [({}, "a"), ({"a": {}}, "a.b"), ({"a": {"b": 1}}, "a.b"), ({"a": {"b": []}, "c": 1}, "c"),
     ({"a": {"b": [{"d": 1}]}}, "a.b.d")],
)  # fmt: skip
def test_what_does_not_fit_is_named(value, name):
    with pytest.raises(ValueError, match=f"^{name}$"):
        complete(value, {"a": {"b": [{"d": str}]}})
