"""JSON, XML and YAML from anyone: plain data within bounds, or one short error at once."""

import gc
import io
import json
import math
import time
import tracemalloc
from contextlib import suppress
from xml.etree import ElementTree

import pytest
import yaml

from duet.utils.errors import UserError
from duet.utils.files import json_files, xml_files, yaml_files
from duet.utils.files.json_files import LARGEST_COUNT, Default, complete, parse_json, read_json
from duet.utils.files.xml_files import read_xml, stream_xml
from duet.utils.files.yaml_files import MAX_NODES, read_yaml, write_yaml, yaml_text

# Seconds for the largest file, 2 of them on an idle machine, and characters of an error.
LIMITS = {"json": (5, 200), "xml": (5, 300), "yaml": (10, 600)}


def aliases(start: str, link: str, levels: int = 12) -> str:
    """Nine times nine times ... the same value, by aliases."""
    lines = [f"a0: &a0 {start}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} " + link.format(f"*a{level - 1}"))
    return "\n".join([*lines, f"names: *a{levels - 1}"])


ENTITIES = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))
BOMB = f'<!DOCTYPE l [<!ENTITY a0 "{"x" * 1000}">{ENTITIES}]><l>&a11;</l>'
LONG = "a: " + "x" * 500 + "\nb: {" + "k" * 500 + ": .nan}"
# Of a form: a file, and what the error says.
HOSTILE = {
    "json": {
        "brackets": ("[" * 1_000_000, "nested"),
        "braces": ('{"a":' * 900 + "1" + "}" * 900, "nested deeper than 64"),
        "digits": ('{"a": ' + "7" * 5_000_000 + "}", "777... is beyond 64 bits"),
        "a key twice": ('[{"a": 1, "b": 1, "a": 2}]', "the key 'a' appears twice"),
        "bytes": (b'{"a": "caf\xe9"}', "'utf-8' codec"),
        "no end": ('{"a": ', "Expecting value"),
    },
    "xml": {
        "nothing": ("", "line 1: invalid XML: no element found"),
        "another end": ("<a>\n</b>", "line 2: invalid XML: mismatched tag"),
        "an entity of its own": ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "DOCTYPE"),
        "entities of entities": (BOMB, "DOCTYPE"),
        "an unknown entity": ("<a>&b;</a>", "undefined entity"),
        "too deep": ("<a>" * 1_000_000, "nested deeper than 64"),
        "one too deep": ("<a>" * 65 + "</a>" * 65, "nested deeper than 64"),
        **{f"the encoding {name}": (f'<?xml version="1.0" encoding="{name}"?><a/>', "encoding")
           for name in ("gbk", "zip", "punycode", "undefined", "utf-7", "unknown", "x" * 10_000)},
    },
    "yaml": {
        "lists in lists": (aliases("[x, x]", "[{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]"), "line"),
        "mappings in mappings": (aliases("{x: y}", "{{p: {0}, q: {0}, r: {0}, s: {0}}}"), "line"),
        "a merge": ("names: {<<: {a: 1}}", "line 1"),
        "an alias in what it stands for": ("names: &a [*a]", "line 1"),
        "brackets": ("names: " + "[" * 100_000, "line 1, names"),
        "indents": ("\n".join(" " * level + "a:" for level in range(2_000)), "line"),
        "many nodes": ("names:\n" + "- a\n" * (MAX_NODES + 1), "line"),
        "many directives": (
            "".join(f"%TAG !a{i}! b\n" for i in range(200_000)) + "---\nnames: []", "line 1"),
        "two documents": ("names: [a]\n---\nnames: [b]", "line"),
        "digits": ("nc: " + "7" * 5_000, "line 1, nc"),
        "a number beyond 64 bits": (f"nc: {2**63}", "line 1, nc"),
        "not a number": ("lr0: .nan", "line 1, lr0"),
        "a tag that is not met": ("nc: !!int abc", "line 1, nc"),
        "a date": ("a: 1\nnames:\n  - b\n  - 2024-01-01\n", "line 4, names.1: "),
        "a tag": ("a: 1\nb: {c: {d: !x 1}}\n", "line 2, b.c.d: "),
        "code": ("nc: !!python/object/apply:os.system [id]", "line 1, nc"),
        "a key twice": ("a: 1\nb:\n  c: 1\n  c: 2\n", "line 4, b: "),
        "a key twice, as text and number": ('nc: {1: a, "1": b}', "line 1, nc"),
        "a list as a key": ("nc: {[a]: b}", "line 1, nc"),
        "a broken number as a key": ("nc: {1.5: b}", "line 1, nc"),
        "long texts": (LONG, "line 2, b." + "k" * 37 + "...: "),
        "a surrogate": ('nc: "\\ud800"', "line 1"),
        "a control character": ("nc: 1\nb: \x1b[31m", "line 2: "),
        "bytes": (b"a: 1\nb: caf\xe9\n", "line 2: "),
        "no end": ("nc: [1, 2\n", "line 2: "),
        "too deep": ("a: " + "[" * 32 + "]" * 32, "line 1, a.*nested deeper than 32"),
        **{f"no mapping: {text}": (text, "not a mapping of names to values; see the shipped")
           for text in ("", "# nothing", "[1]", "text", "3")},
    },
}  # fmt: skip


def read(form: str, path, content: str | bytes):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if form == "yaml":
        return read_yaml("--data", path, "see the shipped ones")
    return read_xml(path, 1 << 25) if form == "xml" else read_json(path)


@pytest.mark.parametrize(
    ("form", "kind"), [(form, kind) for form, kinds in HOSTILE.items() for kind in kinds]
)
def test_hostile_data_is_one_short_quick_error(tmp_path, form, kind):
    (content, message), path = HOSTILE[form][kind], tmp_path / "hostile"
    seconds, length = LIMITS[form]
    start = time.process_time()
    with pytest.raises((ValueError, UserError), match=message) as caught:
        read(form, path, content)
    text = str(caught.value)
    if form == "json" and isinstance(content, str):
        with pytest.raises(ValueError, match=message):
            parse_json(content)
    assert time.process_time() - start < seconds
    assert text.isprintable() and len(text) < length + len(str(path))
    if form == "yaml":
        assert text.startswith(f"--data {path}: {message if '*' not in message else 'line 1, a'}")


XML = [
    b"<a/>",
    b'<?xml version="1.0"?>\n<!-- b --><a b="1" c="&lt;&#65;"> d <e>f</e> g <e/></a>',
    b"\xef\xbb\xbf<a>&amp;<![CDATA[<b>]]>c</a>",
    '<?xml version="1.0" encoding="utf-16"?><a>标签</a>'.encode("utf-16"),
    '<?xml version="1.0" encoding="windows-1252"?><a>€</a>'.encode("cp1252"),
    '<?xml version="1.0" encoding="ISO-8859-15"?><a>€</a>'.encode("iso-8859-15"),
    b"<a>" + b"x" * (1 << 23) + b"</a>",
    b"<a>" * xml_files.MAX_DEPTH + b"</a>" * xml_files.MAX_DEPTH,
]
DEEP = "[" * (json_files.MAX_DEPTH - 1) + "]" * (json_files.MAX_DEPTH - 1)
JSON = json.dumps(
    {
        "numbers": [0, -(2**63), 2**63 - 1, 1.5, 1e300, math.inf],  # a state may hold infinity
        "texts": ["\0\x1b\u202e", "\udce9"],  # and a path that is not UTF-8
        "deep": json.loads(DEEP),
        "others": [None, True, {}],
    }
)
NESTED = "[" * (yaml_files.MAX_DEPTH - 1) + "]" * (yaml_files.MAX_DEPTH - 1)  # a mapping is one
YAML = f"""
    texts: [plain, "double \\x1b \\u202e", 'single', 1e-3, "2024-01-01", !!str 5, ! x]
    numbers: [0, -1, 0x1f, 0b11, 017, 1_000, 1:30, 3.5, 1.0e-3, -.5, 9223372036854775807,
              !!int "3", !!float 3]
    others: [yes, no, ~, null, true]
    1: a whole number as a key
    block: |
      import os
        os.system()
    folded: >-
      a
      b
    base: &base {{lr: 0.1, other: &list [1, 2]}}
    own: *base
    names: *list
    deep: {NESTED}
"""


def test_plain_data_parses_like_the_usual_library(tmp_path):
    for content in XML:
        found, expected = read("xml", tmp_path / "a", content), ElementTree.fromstring(content)
        assert ElementTree.tostring(found) == ElementTree.tostring(expected)
    expected = json.loads(JSON)
    assert read("json", tmp_path / "a", b"\xef\xbb\xbf" + JSON.encode()) == expected
    assert parse_json(JSON) == expected
    with pytest.raises(OSError, match="at most 10"):
        read_json(tmp_path / "a", 10)
    assert read("yaml", tmp_path / "a", YAML) == yaml.safe_load(YAML)


def test_written_yaml_is_read_back_equal(tmp_path):
    texts = [chr(code) for code in (*range(1, 0x300), 0x2028, 0x202E, 0xFEFF, 0xFFFD, 0x1F600)]
    document = {
        "texts": ["".join(texts), *texts, *(f"a{x}b" for x in texts), "yes", "1e3", "=", "<<", "~"],
        "numbers": [0.1, 1e-300, 1e300, -3],
        "others": [None, True, {0: "a"}],
    }
    path = tmp_path / "written.yaml"
    write_yaml(path, document)
    assert read_yaml("--hyp", path, "") == document
    assert path.read_text(encoding="utf-8") == yaml_text(document)


def test_bytes_of_a_json_file_are_gone_when_it_is_parsed(tmp_path):
    number = 4_000_000
    (tmp_path / "a.json").write_text(f'["{"a" * number}"]')
    tracemalloc.start()
    (found,) = read_json(tmp_path / "a.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == number and peak < 2.5 * number  # the text, and its bytes or the value


@pytest.mark.parametrize("content", [b"<a><b/></a>", b"<a><b/>"])
def test_parsed_xml_leaves_nothing_to_the_garbage_collector(tmp_path, content):
    """It is paused while thousands of annotation files are read: each would take 20 kB."""
    (tmp_path / "a.xml").write_bytes(content)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with suppress(ValueError):
                read_xml(tmp_path / "a.xml")
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_xml_stream_yields_outermost_elements_by_name():
    content = b"""<a><meta><label><name>cat</name></label></meta>
        <image id="0"/> text <image id="1"><box/><image id="2"/></image>
        <other><image id="3"/></other></a>"""
    found = list(stream_xml(io.BytesIO(content), {"image", "label"}))
    assert [(element.tag, element.get("id")) for element in found] == [
        ("label", None), ("image", "0"), ("image", "1"), ("image", "3"),
    ]  # fmt: skip
    assert found[0].findtext("name") == "cat"
    assert [part.tag for part in found[2]] == ["box", "image"]


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
def test_json_value_matches_its_kind_or_is_refused(kind, good, bad):
    for value in good:
        assert complete(value, kind) == value
    for value in bad:
        with pytest.raises(ValueError):
            complete(value, kind)


def test_nested_defaults_are_filled_and_not_shared():
    kind = [{"a": Default([int], []), "b": Default({"c": Default(int, 3)}, {"c": 4})}]
    one, two = complete([{}, {"a": [1], "b": {}}], kind)
    assert one == {"a": [], "b": {"c": 4}} and two == {"a": [1], "b": {"c": 3}}
    one["a"].append(1)
    assert complete([{}], kind)[0]["a"] == []
