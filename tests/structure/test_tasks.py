"""Nothing outside a head's folder says which task it is for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.structure.source_files import PYTHON_FILES, parse
from utils.files.project import PROJECT

# Where any task is served.
SHARED = ("models/", "utils/report/", "utils/evaluation/progress.py", "train.py")
HEADS_OF_BOXES = ("models/heads/anchor/", "models/heads/mask/")
REGISTRY = "models/heads/__init__.py"  # imports every head, so that model YAMLs may name it
# Detection's losses by name, and losses that are three.
TEXTS = re.compile(r"objectness|\b(box|obj|cls)_loss|\[:3\]|zeros\(3\)|reshape\(-1, 3\)")
EVALUATOR = "utils.evaluation.coco.metric.DetectionEvaluator"


def shared_files() -> Iterator[Path]:
    for path in PYTHON_FILES:
        name = path.relative_to(PROJECT).as_posix()
        if name.startswith(SHARED) and not name.startswith(HEADS_OF_BOXES):
            yield path


def imports_of(path: Path) -> Iterator[str]:
    """The full names of what a file imports."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_shared_file_knows_the_losses_of_detection() -> None:
    found = [
        f"{path.relative_to(PROJECT)}: {line.strip()}"
        for path in shared_files()
        for line in path.read_text(encoding="utf-8").splitlines()
        if TEXTS.search(line)
    ]
    assert found == []


def test_only_the_registry_imports_a_head() -> None:
    found = {
        path.relative_to(PROJECT).as_posix()
        for path in shared_files()
        for name in imports_of(path)
        if name.startswith("models.heads.anchor") or name == EVALUATOR
    }
    assert found == {REGISTRY}
