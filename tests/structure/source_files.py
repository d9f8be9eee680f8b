"""The project's Python files, by module name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from utils.files.project import PROJECT

# Each of docs/examples is a program of its own, without Duet; docs/blocks are those of readers.
PYTHON_FILES = [
    path
    for path in sorted(PROJECT.rglob("*.py"))
    if not any(part.startswith(".") for part in path.relative_to(PROJECT).parts)
    and path.relative_to(PROJECT).parts[:2] not in (("docs", "examples"), ("docs", "blocks"))
]


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))
