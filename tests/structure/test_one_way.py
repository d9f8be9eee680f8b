"""What comes from outside has one way in, and what goes to a person one way out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.source_files import PYTHON_FILES, parse
from utils.files.project import PROJECT

YAML = "utils/files/yaml.py"
XML = "utils/files/xml.py"
JSON_READERS = {"utils/files/json.py"}
PRINTERS = {
    "utils/screen/text.py",
    "utils/processes/command.py",  # the message that ends a command
}
# They run before anything is installed, or print nothing but names of ours.
ELSEWHERE = (
    "tests/",
    "benchmarks/",
    "utils/setup/",
    "backend/contract/",
)


def product_files() -> Iterator[tuple[str, Path]]:
    for path in PYTHON_FILES:
        name = path.relative_to(PROJECT).as_posix()
        if not name.startswith(ELSEWHERE):
            yield name, path


def files_that_call(*functions: str) -> set[str]:
    return {
        name
        for name, path in product_files()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in functions
    }


def files_that_import(*packages: str) -> set[str]:
    return {
        name
        for name, path in product_files()
        for node in ast.walk(parse(path))
        for module in imported_modules(node)
        if module.partition(".")[0] in packages
    }


def imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_one_file_knows_the_yaml_library():
    assert files_that_import("yaml") == {YAML}


def test_xml_is_read_in_one_place():
    assert files_that_import("xml", "defusedxml", "lxml", "pyexpat") == {XML}


def test_json_is_read_in_one_place():
    assert files_that_call("json.loads", "json.load") == JSON_READERS
    assert files_that_call("json.JSONDecoder") == {"utils/files/json.py"}


def test_all_that_is_printed_is_made_printable():
    """`print(x)` elsewhere is `say(x)` of utils/screen/text.py."""
    assert files_that_call("print", "pprint", "sys.stdout.write") == PRINTERS


@pytest.mark.parametrize("name", sorted(PRINTERS))
def test_what_may_print_asks_for_it(name):
    text = (PROJECT / name).read_text(encoding="utf-8")
    assert "printable(" in text or "as_message(" in text
