"""utils/json_files.py: what is read, has the form that is expected, and stands for the absent."""

import json
import math
import time

import pytest

from duet.utils import json_files as our_json
from duet.utils.json_files import (
    LARGEST_COUNT,
    MAX_DEPTH,
    Default,
    complete,
    parse_json,
    read_json,
    read_members,
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


def read(path, content, max_bytes=1 << 30):
    """Return all members of a JSON text, lists whole."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    members = read_members(path, max_bytes)
    return {name: None if entries is None else list(entries) for name, entries in members}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.json"


@pytest.fixture(params=[1, 2, 5, 1 << 20])
def block(request, monkeypatch):
    """Let the window end anywhere."""
    monkeypatch.setattr(our_json, "_BLOCK_CHARACTERS", request.param)


def test_lists_are_read_by_entries_and_other_values_passed_over(path, block):
    document = {
        "info": {"a": [1, {"b": "]"}]}, "empty": [], "n": -1.5e-3, "numbers": [1, 2.5, -30, 4e2],
        "texts": ["", "a,]}\"\\", "größe 🦉"], "no": None, "nested": [[1, [2]], {"c": {}}],
    }  # fmt: skip
    lists = {key: value if isinstance(value, list) else None for key, value in document.items()}
    for text in (
        json.dumps(document),
        json.dumps(document, indent=2, ensure_ascii=False),
        json.dumps(document, separators=(",", ":")),
        "\ufeff \n" + json.dumps(document) + "\r\n\t ",
    ):
        found = read(path, text)
        assert found == lists and list(found) == list(lists)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "{ is needed where the end of the file follows"),
        ("[1]", r"{ is needed where '\["),
        ('{"a": [1, 2', "and the file ends"),
        ('{"a": [1 2]}', ", is needed where '2"),
        ('{"a" 1}', ": is needed where '1"),
        ('{"a": 1} {', "its end is needed where '{' follows"),
        ('{"a": [], "a": []}', "'a' appears twice, or is no text"),
        ("{1: 2}", "1 appears twice, or is no text"),
        ('{"a": [9223372036854775808]}', "beyond 64 bits"),
        ('{"a": [' + "[" * 100_000, "nested deeper"),
        (b'{"a": ["caf\xe9"]}', "'utf-8' codec"),
    ],
)
def test_what_is_no_object_is_refused(path, block, content, text):
    with pytest.raises(ValueError, match=text) as caught:
        read(path, content)
    assert len(str(caught.value)) < 300


def test_an_entry_is_bounded(path, monkeypatch):
    monkeypatch.setattr(our_json, "MAX_ENTRY", 1000)
    monkeypatch.setattr(our_json, "_BLOCK_CHARACTERS", 100)
    many = {"a": ["x" * 900] * 50}
    assert read(path, json.dumps(many)) == many
    for entry in ('"' + "x" * 5000 + '"', "[" + "1," * 3000 + "1]", "tru" + "e" * 5000):
        with pytest.raises(ValueError, match="an entry has at most 1,000 characters"):
            read(path, '{"a": [' + entry + "]}")
