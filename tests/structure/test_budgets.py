"""Lines per room: growth is a decision. A commit that raises a budget says why."""

from collections import Counter
from pathlib import Path

from duet.utils.project import PROJECT
from tests.structure.test_imports import PYTHON_FILES

PRODUCT = ("backend", "duet", "models", "utils")
# Of each room, a folder directly below models/ or utils/; what lies flat there is "models" and
# "utils". "scripts" are those at the top and the __main__ of every folder.
BUDGETS = {
    "backend": 6590,
    "duet": 425,
    "models": 591,
    "models/blocks": 881,
    "models/detect": 1054,
    "models/evaluation": 922,
    "models/export": 1449,
    "models/heads": 2564,
    "models/inference": 710,
    "models/training": 2792,
    "scripts": 1171,
    "utils": 1008,
    "utils/cli": 1366,
    "utils/comparison": 1247,
    "utils/data": 11204,
    "utils/detect": 2038,
    "utils/evaluation": 1753,
    "utils/evolution": 410,
    "utils/export": 1663,
    "utils/files": 1111,
    "utils/geometry": 339,
    "utils/processes": 1183,
    "utils/report": 1438,
    "utils/serve": 862,
    "utils/setup": 364,
    "utils/state": 845,
    "utils/system": 410,
    "utils/weights": 1636,
}
LONGEST_SCRIPT = 110
PLACES_OF_YOLOV5 = ("segment", "classify")  # scripts that start ours
PRODUCT_FILES = 364
OTHERS = {"tests": 54971, "benchmarks": 2669}


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


def test_product_keeps_its_file_budget():
    files = [path for path in PYTHON_FILES if room_of(path) in BUDGETS]
    assert len(files) <= PRODUCT_FILES


def test_top_level_scripts_are_short():
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in PROJECT.glob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_SCRIPT} == {}
