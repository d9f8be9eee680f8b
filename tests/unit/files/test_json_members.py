"""utils/files/json.py: a large object member by member, within bounds."""

import json

import pytest

from utils.files import json as our_json
from utils.files.json import read_members


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
    monkeypatch.setattr(our_json, "_BLOCK_BYTES", request.param)


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
        ("", "its end at character 0, where { is needed"),
        ("[1]", "'\\[' at character 0, where { is needed"),
        ('{"a": [1, 2', "the file ends"),
        ('{"a": [1 2]}', "'2' at character 9, where , is needed"),
        ('{"a": [1,]}', "Expecting value at character 9"),
        ('{"a" 1}', "'1' at character 5, where : is needed"),
        ('{"a": 1} {', "more follows after its end, at character 9"),
        ('{"a": 1,}', "Expecting value at character 8"),
        ('{"a": [], "a": []}', "'a' appears twice, or is no text"),
        ("{1: 2}", "1 appears twice, or is no text"),
        ('{"a": [{"b": 1, "b": 2}]}', "'b' appears twice"),
        ('{"a": [9223372036854775808]}', "beyond 64 bits"),
        ('{"a": [' + "[" * 100_000, "nested deeper"),
        ('{"a": ' + '{"a":' * 100_000, "nested deeper"),
        (b'{"a": ["caf\xe9"]}', "'utf-8' codec"),
        (b'{"a": ["caf\xc3', "'utf-8' codec"),
        ('{"a": []}'.encode("utf-16"), "'utf-8' codec"),
    ],
)
def test_what_is_no_object_is_refused(path, block, content, text):
    with pytest.raises(ValueError, match=text) as caught:
        read(path, content)
    assert len(str(caught.value)) < 300


def test_an_entry_is_bounded(path, monkeypatch):
    monkeypatch.setattr(our_json, "MAX_ENTRY", 1000)
    monkeypatch.setattr(our_json, "_BLOCK_BYTES", 100)
    many = {"a": ["x" * 900] * 50}
    assert read(path, json.dumps(many)) == many
    for entry in ('"' + "x" * 5000 + '"', "[" + "1," * 3000 + "1]", "tru" + "e" * 5000):
        with pytest.raises(ValueError, match="an entry has at most 1,000 characters"):
            read(path, '{"a": [' + entry + "]}")
