"""The project's Python files, and what they import."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from duet.utils.project import PROJECT

# Each of docs/examples is a program of its own, without Duet; docs/blocks are those of readers.
PYTHON_FILES = [
    path
    for path in sorted(PROJECT.rglob("*.py"))  # without those behind the links of duet/
    if not path.is_symlink()
    and not any(part.startswith(".") for part in path.relative_to(PROJECT).parts)
    and path.relative_to(PROJECT).parts[:2] not in (("docs", "examples"), ("docs", "blocks"))
]


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    """The path of a file from the project's folder, with "/"."""
    return path.relative_to(PROJECT).as_posix()


def imports_of(tree: ast.AST) -> Iterator[str]:
    """The full names of what a tree imports: modules, and names in modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
