"""Every file and every name in a file that a docstring, a comment or a page points to is there."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

from duet.utils.project import PROJECT
from tests.structure.source_files import PYTHON_FILES, parse

PAGES = [*PROJECT.glob("README*.md"), *PROJECT.glob("docs/**/*.md"), PROJECT / "CONTRIBUTING.md"]
# A Python file, perhaps with a name in it. A folder in capitals stands for any.
REFERENCE = re.compile(r"(?<![\w./*<-])([\w./-]*\w\.py)\b(?:::(\w+))?")


def prose(path: Path) -> str:
    """Docstrings and comments of a Python file; all of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(parse(path)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join([*(ast.get_docstring(node) or "" for node in nodes), *comments])


def resolve(reference: str, place: Path) -> Path | None:
    """The file that is meant: from the project's folder or docs, from here, or by its ending."""
    pattern = re.sub(r"\b[A-Z]+\b", "*", reference)
    for folder in (PROJECT, PROJECT / "docs", PROJECT / "docs/en", place.parent):
        if found := next(folder.glob(pattern), None):
            return found
    ending = [path for path in PYTHON_FILES if str(path).endswith(f"/{reference}")]
    return ending[0] if len(ending) == 1 else None


@cache
def names_in(path: Path) -> set[str]:
    """Functions, classes and methods of a file, and what it assigns to."""
    nodes = list(ast.walk(parse(path)))
    defined = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return defined | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def missing_in(path: Path) -> list[str]:
    """What a file points to that is not there, or that two files could be."""
    missing = []
    for reference, name in REFERENCE.findall(prose(path)):
        found = resolve(reference, path)
        if found is None or (name and name not in names_in(found)):
            missing.append(f"{reference}::{name}" if name else reference)
    return missing


def test_every_reference_points_to_what_is_there() -> None:
    missing = {str(path.relative_to(PROJECT)): missing_in(path) for path in PYTHON_FILES + PAGES}
    assert {path: found for path, found in missing.items() if found} == {}


def test_a_stale_reference_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    stale = "`train.py::no_such_name`, utils/no_such_file.py, `head.py`"  # the last: two have it
    page.write_text(f"`train.py::main`, `coco/metric.py`, backend/NAME/ops.py, {stale}")
    assert missing_in(page) == ["train.py::no_such_name", "utils/no_such_file.py", "head.py"]
