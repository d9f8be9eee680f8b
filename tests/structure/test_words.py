"""A number and its noun are put together by backend/words.py::count: never "1 images"."""

import ast
import re

import pytest

from backend.words import count
from tests.structure.source_files import PYTHON_FILES, parse
from utils.files.project import PROJECT

NOUNS = (
    "images batches epochs classes threads cores steps processes tensors updates records states "
    "devices labels problems files entries columns levels minutes"
)
COUNTED = re.compile(rf"(?<!/)(?:%d|\0) ({NOUNS.replace(' ', '|')})\b(?!/)")


def text_of(node: ast.AST) -> str:
    """A text with "\\0" in place of every value; "" for what is none."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values
        )
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def counted_by_hand(tree: ast.AST) -> list[str]:
    return [
        match[0].replace("\0", "{}")
        for node in ast.walk(tree)
        for match in COUNTED.finditer(text_of(node))
    ]


def test_every_count_is_written_by_the_one_function():
    found = {
        f"{path.relative_to(PROJECT)}: {text}"
        for path in PYTHON_FILES
        if "tests" not in path.parts
        for text in counted_by_hand(parse(path))
    }
    assert found == set()


def test_a_count_by_hand_is_found():
    code = 'log.info("%d images", n); f"has {n} classes"; f"{n} image"; f"{speed} images/s"'
    assert sorted(counted_by_hand(ast.parse(code))) == ["%d images", "{} classes"]


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 images"), (1, "1 image"), (2, "2 images"), (12000, "12,000 images"), (-1, "-1 images")],
)
def test_a_noun_fits_its_number(number, words):
    assert count(number, "image") == words


def test_a_plural_may_be_irregular():
    assert [count(n, "class", "classes") for n in (1, 3)] == ["1 class", "3 classes"]
