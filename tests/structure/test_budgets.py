"""Lines per room: growth is a decision. A commit that raises a budget says why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from duet.utils.project import PROJECT
from tests.structure.source_files import PYTHON_FILES

PRODUCT = ("backend", "duet", "models", "utils")
# Of each room, a folder directly below models/ or utils/; what lies flat there is "models" and
# "utils". "scripts" are those at the top and the __main__ of every folder.
BUDGETS = {
    "backend": 6589,
    "duet": 426,
    "models": 563,
    "models/blocks": 908,
    "models/detect": 1078,
    "models/evaluation": 950,
    "models/export": 1531,
    "models/heads": 2587,
    "models/inference": 738,
    "models/training": 2810,
    "scripts": 1214,
    "utils": 772,
    "utils/cli": 1333,
    "utils/comparison": 1286,
    "utils/data": 11859,
    "utils/detect": 2108,
    "utils/evaluation": 1781,
    "utils/evolution": 420,
    "utils/export": 1724,
    "utils/files": 1125,
    "utils/geometry": 411,
    "utils/processes": 1207,
    "utils/report": 1539,
    "utils/serve": 885,
    "utils/setup": 365,
    "utils/state": 848,
    "utils/system": 398,
    "utils/tasks": 224,
    "utils/weights": 1685,
}
LONGEST_SCRIPT = 110
PLACES_OF_YOLOV5 = ("segment", "classify")  # scripts that start ours
PRODUCT_FILES = 364
OTHERS = {"tests": 58650, "benchmarks": 2717}


def room_of(path: Path) -> str:
    """The room of a file of the product, or the folder of any other."""
    parts = path.relative_to(PROJECT).parts
    if (
        len(parts) == 1
        or parts[0] in PLACES_OF_YOLOV5
        or (parts[0] in PRODUCT and parts[-1] == "__main__.py")
    ):
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


def test_the_scripts_at_the_top_are_short():
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in PROJECT.glob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_SCRIPT} == {}
