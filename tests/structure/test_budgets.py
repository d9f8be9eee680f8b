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
    "backend": 6489,
    "duet": 234,
    "models": 571,
    "models/blocks": 909,
    "models/detection": 1177,
    "models/evaluation": 1023,
    "models/export": 1411,
    "models/heads": 2859,
    "models/inference": 528,
    "models/training": 2672,
    "scripts": 1310,
    "utils": 2425,
    "utils/cli": 1108,
    "utils/comparison": 1459,
    "utils/data": 12440,
    "utils/detect": 2556,
    "utils/evaluation": 1672,
    "utils/evolution": 473,
    "utils/export": 1901,
    "utils/processes": 1318,
    "utils/report": 1718,
    "utils/serve": 840,
    "utils/setup": 346,
    "utils/state": 877,
    "utils/tasks": 341,
    "utils/weights": 2055,
}
LONGEST_SCRIPT = 110
PLACES_OF_YOLOV5 = ("segment", "classify")  # scripts that start ours
PRODUCT_FILES = 398
OTHERS = {"tests": 57413, "benchmarks": 3009}


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
