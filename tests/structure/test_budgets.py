"""Lines per room: growth is a decision. A commit that raises a budget says why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.structure.source_files import PYTHON_FILES
from utils.project import PROJECT

PRODUCT = ("backend", "duet", "models", "utils")
# Of each room, a folder directly below models/ or utils/; what lies flat there is "models" and
# "utils". "scripts" are those at the top and the __main__ of every folder.
BUDGETS = {
    "backend": 6490,
    "duet": 54,
    "models": 590,
    "models/blocks": 835,
    "models/detection": 1177,
    "models/evaluation": 535,
    "models/export": 1512,
    "models/heads": 2560,
    "models/inference": 518,
    "models/training": 2636,
    "scripts": 1278,
    "utils": 2173,
    "utils/cli": 1141,
    "utils/comparison": 1487,
    "utils/data": 12663,
    "utils/detect": 2599,
    "utils/evaluation": 2122,
    "utils/evolution": 505,
    "utils/export": 1983,
    "utils/processes": 1445,
    "utils/report": 1871,
    "utils/serve": 828,
    "utils/setup": 396,
    "utils/state": 897,
    "utils/tasks": 581,
    "utils/weights": 2193,
}
PRODUCT_FILES = 386
OTHERS = {"tests": 58946, "benchmarks": 2800}


def room_of(path: Path) -> str:
    """The room of a file of the product, or the folder of any other."""
    parts = path.relative_to(PROJECT).parts
    if len(parts) == 1 or (parts[0] in PRODUCT and parts[-1] == "__main__.py"):
        return "scripts"
    if parts[0] in ("models", "utils") and len(parts) > 2:
        return f"{parts[0]}/{parts[1]}"
    return parts[0]


def lines_by_room() -> Counter[str]:
    """How many lines each room has."""
    lines: Counter[str] = Counter()
    for path in PYTHON_FILES:
        lines[room_of(path)] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def test_each_room_keeps_its_budget():
    found = lines_by_room()
    budgets = {**BUDGETS, **OTHERS}
    assert {room for room in found if room != "docs"} == set(budgets)
    over = {room: found[room] for room in budgets if found[room] > budgets[room]}
    assert over == {}, "say in the commit why a room grows, and raise its budget"


def test_the_product_keeps_its_number_of_files():
    files = [path for path in PYTHON_FILES if room_of(path) in BUDGETS]
    assert len(files) <= PRODUCT_FILES
