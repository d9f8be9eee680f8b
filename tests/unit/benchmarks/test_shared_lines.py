"""benchmarks: the lines that tasks share are counted as they are executed."""

import numpy as np

from benchmarks.shared_lines import SCRIPTS, Tracer, own_files, table
from utils.detections import GroundTruth
from utils.files.project import PROJECT
from utils.ragged import Ragged


def traced(work):
    tracer = Tracer()
    tracer.start()
    try:
        work()
    finally:
        tracer.stop()
    return tracer.lines()


def test_executed_lines_of_functions_of_the_product_are_noted_and_no_others():
    lines = (PROJECT / "utils/ragged.py").read_text().splitlines()
    ragged = Ragged(np.zeros(0), np.zeros(0, np.int64))
    found = traced(ragged.rows)
    assert {file for file, _ in found} == {"utils/ragged.py"}
    assert ["return np.split" in lines[number - 1] for _, number in found] == [True]
    assert traced(lambda: sum(range(3))) == set()


def test_a_branch_that_is_not_taken_is_not_noted():
    rows = [Ragged(np.zeros(0), np.zeros(0, np.int64)).rows, Ragged.of([np.ones(1)], float).rows]
    assert traced(rows[0]) == traced(rows[1])  # both branches lie on one line
    plain = GroundTruth(np.zeros(1), np.zeros((1, 4)))
    assert len(traced(lambda: plain.take(np.zeros(1, bool)))) == 3


def test_the_table_has_the_part_that_all_tasks_execute():
    def task(*numbers):
        lines = {("a.py", number) for number in numbers}
        return dict.fromkeys(SCRIPTS, lines)

    lines = {"x": task(1, 2, 3, 4), "y": task(1, 2, 3), "z": task(2, 3, 4, 5, 6)}
    rows = table(lines)
    assert [row.split()[:3] for row in rows[1:4]] == [
        ["x", "4", "50.0%"], ["y", "3", "66.7%"], ["z", "5", "40.0%"]
    ]  # fmt: skip
    assert rows[4:] == [
        "2 lines are executed by all tasks",
        "x: 100.0% are executed by another task too",
        "y: 100.0% are executed by another task too",
        "z: 60.0% are executed by another task too",
    ]
    assert own_files(lines, 1) == ["  a.py: x 2, y 1, z 3"]
