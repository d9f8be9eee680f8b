"""Lines per room: growth is a decision. A commit that raises a budget says why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.structure.source_files import PYTHON_FILES
from utils.files.project import PROJECT

PRODUCT = ("backend", "models", "utils")
# Of each room, a folder directly below models/ or utils/; what lies flat there is "models" and
# "utils". "scripts" are those at the top and the __main__ of every folder.
BUDGETS = {
    "backend": 6970,
    "models": 1460,
    "models/blocks": 730,
    "models/export": 1540,
    "models/heads": 2690,
    "models/inference": 1720,
    "models/serving": 300,
    "models/training": 2910,
    "scripts": 1290,
    "utils": 520,
    "utils/cli": 1660,
    "utils/comparison": 1630,
    "utils/data": 13_710,
    "utils/drawing": 370,
    "utils/evaluation": 2020,
    "utils/evolution": 720,
    "utils/export": 1970,
    "utils/files": 1280,
    "utils/masks": 660,
    "utils/media": 1200,
    "utils/page": 170,
    "utils/pipeline": 430,
    "utils/processes": 1550,
    "utils/report": 1780,
    "utils/results": 1220,
    "utils/screen": 320,
    "utils/serve": 720,
    "utils/setup": 500,
    "utils/state": 1390,
    "utils/tasks": 680,
    "utils/tracking": 150,
    "utils/weights": 2050,
}
PRODUCT_FILES = 483
OTHERS = {"tests": 72_200, "benchmarks": 3100}


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
