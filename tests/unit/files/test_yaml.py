"""utils/files/yaml_files.py: YAML from anyone is plain data within bounds, or one clear error."""

from __future__ import annotations

import time

import pytest
import yaml

from duet.utils.errors import UserError
from duet.utils.files.yaml_files import MAX_DEPTH, MAX_NODES, read_yaml, write_yaml, yaml_text

SECONDS = 10  # for the largest file that is accepted; it takes about 2 on an idle machine


def laughs(start: str, link: str, levels: int = 12) -> str:
    """Nine times nine times ... the same value, by aliases."""
    lines = [f"a0: &a0 {start}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} " + link.format(f"*a{level - 1}"))
    return "\n".join([*lines, f"names: *a{levels - 1}"])


HOSTILE = {
    "lists in lists": laughs("[x, x]", "[{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]"),
    "mappings in mappings": laughs("{x: y}", "{{p: {0}, q: {0}, r: {0}, s: {0}, t: {0}}}"),
    "a merge": "names: {<<: {a: 1}}",
    "an alias in what it stands for": "names: &a [*a]",
    "brackets": "names: " + "[" * 100_000,
    "indents": "\n".join(" " * level + "a:" for level in range(2_000)),
    "many nodes": "names:\n" + "- a\n" * (MAX_NODES + 1),
    "many directives": "".join(f"%TAG !a{i}! b\n" for i in range(200_000)) + "---\nnames: []",
    "two documents": "names: [a]\n---\nnames: [b]",
    "digits": "nc: " + "7" * 5_000,
    "a number beyond 64 bits": f"nc: {2**63}",
    "not a number": "lr0: .nan",
    "a tag that is not met": "nc: !!int abc",
    "a date": "nc: 2024-01-01",
    "code": "nc: !!python/object/apply:os.system [id]",
    "a key twice": "nc: 1\nnc: 2",
    "a key twice, as text and number": 'nc: {1: a, "1": b}',
    "a list as a key": "nc: {[a]: b}",
    "a broken number as a key": "nc: {1.5: b}",
    "a surrogate": 'nc: "\\ud800"',
    "a control character": "nc: \x1b[31m",
    "no end": "nc: [1, 2",
}


def read(tmp_path, content: str | bytes):
    path = tmp_path / "hostile.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_yaml("--data", path, "see the shipped ones")


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_not_plain_data_is_one_short_error_at_once(kind, tmp_path):
    start = time.process_time()
    with pytest.raises(UserError) as caught:
        read(tmp_path, HOSTILE[kind])
    assert time.process_time() - start < SECONDS
    text = str(caught.value)
    assert text.startswith(f"--data {tmp_path}") and len(text) < 600 + len(str(tmp_path))
    assert text.isprintable() and "line" in text


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("a: 1\nnames:\n  - b\n  - 2024-01-01\n", "line 4, names.1: "),
        ("a: 1\nb: {c: {d: !x 1}}\n", "line 2, b.c.d: "),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "line 4, b: "),
        ("a: [1\n", "line 2: "),
        (b"a: 1\nb: caf\xe9\n", "line 2: "),
        (b"a: 1\nb: \x1b\n", "line 2: "),
        ("a: " + "x" * 500 + "\nb: {" + "k" * 500 + ": .nan}", "line 2, b." + "k" * 37 + "...: "),
    ],
)
def test_an_error_names_line_and_key(content, place, tmp_path):
    with pytest.raises(UserError) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(f"--data {tmp_path / 'hostile.yaml'}: {place}")


def test_plain_yaml_is_what_pyyaml_makes_of_it(tmp_path):
    content = """
        texts: [plain, "double \\x1b \\u202e", 'single', 1e-3, "2024-01-01", !!str 5, ! x]
        numbers: [0, -1, 0x1f, 0b11, 017, 1_000, 1:30, 3.5, 1.0e-3, -.5, 9223372036854775807,
                  !!int "3", !!float 3]
        others: [yes, no, ~, null, , true]
        1: a whole number as a key
        block: |
          import os
            os.system()
        folded: >-
          a
          b
        base: &base {lr: 0.1, other: &list [1, 2]}
        own: *base
        names: *list
    """.replace("null, ,", "null,")
    found = read(tmp_path, content)
    assert found == yaml.safe_load(content)


@pytest.mark.parametrize("content", ["", "# nothing", "[1]", "text", "3"])
def test_what_is_no_mapping_is_refused(content, tmp_path):
    with pytest.raises(UserError, match="not a mapping of names to values; see the shipped"):
        read(tmp_path, content)


def test_depth_up_to_the_limit_is_read(tmp_path):
    inside = MAX_DEPTH - 1  # the mapping itself is one level
    found = read(tmp_path, "a: " + "[" * inside + "]" * inside)["a"]
    for _ in range(inside - 1):
        (found,) = found
    with pytest.raises(UserError, match="line 1, a.*nested deeper than 32"):
        read(tmp_path, "a: " + "[" * (inside + 1) + "]" * (inside + 1))


def test_what_is_written_is_read_again(tmp_path):
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
