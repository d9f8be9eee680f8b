"""utils/files/json_files.py: what is read has the expected form, or stands for the absent."""

import json
import math
import time

import pytest

from duet.utils.files.json_files import (
    LARGEST_COUNT,
    MAX_DEPTH,
    Default,
    complete,
    parse_json,
    read_json,
)

HOSTILE = {
    "brackets": ("[" * 1_000_000, "nested"),
    "braces": ('{"a":' * 900 + "1" + "}" * 900, "nested deeper than 64"),
    "digits": ('{"a": ' + "7" * 5_000_000 + "}", "777... is beyond 64 bits"),
    "a key twice": ('[{"a": 1, "b": 1, "a": 2}]', "the key 'a' appears twice"),
    "bytes": (b'{"a": "caf\xe9"}', "'utf-8' codec"),
    "no end": ('{"a": ', "Expecting value"),
}


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


@pytest.mark.parametrize("kind", HOSTILE)
def test_json_beyond_the_limits_is_one_short_error_at_once(kind):
    content, message = HOSTILE[kind]
    start = time.process_time()
    for form in {content, content.encode() if isinstance(content, str) else content}:
        with pytest.raises(ValueError, match=message) as caught:
            parse_json(form)
        assert len(str(caught.value)) < 200 and str(caught.value).isprintable()
    assert time.process_time() - start < 5


def test_other_json_is_what_the_standard_library_makes_of_it(tmp_path):
    document = {
        "numbers": [0, -(2**63), 2**63 - 1, 1.5, 1e300, math.inf],  # a state may hold infinity
        "texts": ["\0\x1b\u202e", "\udce9"],  # and a path that is not UTF-8
        "deep": json.loads("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)),
        "others": [None, True, {}],
    }
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(document).encode())
    assert read_json(path, 10_000) == document == parse_json(json.dumps(document))
    with pytest.raises(OSError, match="at most 10"):
        read_json(path, 10)
