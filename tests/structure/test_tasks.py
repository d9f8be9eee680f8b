"""Nothing but a head, and a row of a table by the name of a task, is for one task."""

import ast
from collections.abc import Iterator
from pathlib import Path

from duet.models.blocks.registry import MODULES
from duet.utils.project import PROJECT
from duet.utils.tasks import TASKS
from tests.structure.test_imports import PYTHON_FILES, imports_of, name_of, parse

PRODUCT = ("models/", "utils/", "backend/", "train.py", "val.py", "detect.py", "export.py",
           "compare.py", "hubconf.py")  # fmt: skip
# The folders in it are of one task; the rest is the seam.
HEADS = "models/heads/"
# Has rows of tasks whose functions know what the heads return.
TABLE = "models/export/exported.py"
OF_ONE_TASK = tuple(
    f"duet.models.heads.{path.parent.name}." for path in PROJECT.glob(f"{HEADS}*/__init__.py")
)
# The names of public models, by which their files are read; our own tasks are not asked for.
PUBLIC_NAMES = {"utils/weights/public_heads.py", "utils/weights/modules.py"}

NAMES = {name for task in TASKS.values() for name in (task.name, task.head)}


def files_of(rooms: tuple[str, ...], but: tuple[str, ...] = ()) -> Iterator[Path]:
    for path in PYTHON_FILES:
        if name_of(path).startswith(rooms) and not name_of(path).startswith(but or ("\0",)):
            yield path


def is_of_one_task(module: str) -> bool:
    """Whether a full name lies in a head."""
    return f"{module}.".startswith(OF_ONE_TASK)


def compared_names(tree: ast.AST) -> Iterator[str]:
    """The texts that a file compares something with, or looks for, or matches."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            parts = node.args if node.func.attr in ("startswith", "endswith") else []
        for part in parts:
            for constant in ast.walk(part):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    yield constant.value


def head_classes() -> set[str]:
    """The classes of all heads, the seam's own with them."""
    return {
        node.name
        for path in files_of((HEADS,))
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id.endswith("Head") for base in node.bases)
    } | {"Head"}


def checked_types(tree: ast.AST) -> Iterator[str]:
    """The classes that a file hands to isinstance or issubclass."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id in ("isinstance", "issubclass") and len(node.args) == 2:
            yield from (x.id for x in ast.walk(node.args[1]) if isinstance(x, ast.Name))


def test_only_registries_import_task_specific_modules() -> None:
    found = {
        name_of(path)
        for path in files_of(PRODUCT)
        for name in imports_of(parse(path))
        if is_of_one_task(name) and not name_of(path).startswith((HEADS, TABLE))
    }
    assert found == set()
    assert any(map(is_of_one_task, MODULES))


def test_no_file_compares_task_or_head_names() -> None:
    found = {
        (name_of(path), name)
        for path in files_of(PRODUCT)
        if name_of(path) not in PUBLIC_NAMES
        for name in compared_names(parse(path))
        if name in NAMES
    }
    assert found == set()


def test_no_file_checks_the_type_of_a_head() -> None:
    kinds = head_classes()
    found = {
        (name_of(path), kind)
        for path in files_of(PRODUCT, (HEADS, "models/graph.py", "models/blocks/registry.py"))
        for kind in checked_types(parse(path))
        if kind in kinds
    }
    assert found == set()


def test_task_comparisons_are_detected() -> None:
    asking = ast.parse(
        "if task.name == 'detect': pass\n"
        "if head not in ('Segment',): pass\n"
        "match name:\n    case 'classify': pass\n"
        "block.startswith('Detect')\n"
        "isinstance(model.head, (AnchorHead, int))"
    )
    assert {"detect", "Segment", "classify", "Detect"} <= set(compared_names(asking))
    assert set(checked_types(asking)) & head_classes() == {"AnchorHead"}
    assert is_of_one_task("duet.models.heads.anchor.head.AnchorHead")
    assert not is_of_one_task("duet.models.heads.base.Head")
