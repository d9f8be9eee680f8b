"""The rows of a training on screen."""

import pytest

import models.graph  # noqa: F401  registers all heads
from models.registry import find_block
from utils.report.epoch_table import ROWS_A_HEADING, EpochTable
from utils.tasks.table import TASKS

LOSSES = {"box": "box", "objectness": "obj", "classification": "cls"}
FIGURES = {"precision": "P", "recall": "R", "mAP_0.5": "mAP50", "mAP_0.5:0.95": "mAP50-95"}
NUMBERS = [0.0988, 10.5, 0.038, 0.7125, 0.652, 0.684, 0.394]


def test_figures_stand_under_their_names_in_80_columns():
    heading, row = EpochTable(LOSSES, FIGURES).lines(7, 1000, NUMBERS, 12.34, 0.5)
    assert heading.split() == ["epoch", *LOSSES.values(), *FIGURES.values(), "seconds"]
    assert row.split() == [
        "7/1000", "0.099", "10.500", "0.038", "0.713", "0.652", "0.684", "0.394", "12.3",
    ]  # fmt: skip
    assert len(heading) == len(row)
    for name, cell in zip(heading.split(), row.split(), strict=True):
        assert heading.index(name) + len(name) == row.index(cell) + len(cell)
    waiting = EpochTable(LOSSES, FIGURES).lines(1000, 1000, NUMBERS, 9999.9, 9999.9)
    assert waiting[1].endswith("  9999.9  wait 100%") and len(waiting[1]) <= 80


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_rows_of_every_task_fit_into_80_columns(task):
    head = find_block(task.head).kind
    names = head.row_names()
    assert names.keys() <= head.figure_names.keys() and set(task.fitness) & names.keys()
    numbers = [0.5] * (len(head.loss_names) + len(names))
    for line in EpochTable(head.loss_names, names).lines(1000, 1000, numbers, 9999.9, 9999.9):
        assert len(line) <= 80


def test_waiting_for_data_is_told_from_a_tenth_of_the_epoch_on():
    table = EpochTable(LOSSES, FIGURES)
    assert "wait" not in table.lines(1, 9, NUMBERS, 10.0, 1.0)[-1]
    assert table.lines(2, 9, NUMBERS, 10.0, 1.26)[-1].endswith("  wait 13%")


def test_the_heading_comes_again():
    table = EpochTable(LOSSES, FIGURES)
    counts = [len(table.lines(epoch, 60, NUMBERS, 1.0, 0.0)) for epoch in range(1, 61)]
    due = [index for index, number in enumerate(counts) if number == 2]
    assert due == [0, ROWS_A_HEADING, 2 * ROWS_A_HEADING]


def test_what_was_not_measured_keeps_its_place():
    heading, row = EpochTable({"box": "box"}, {"acc": "acc"}).lines(1, 2, [float("nan"), 0.5], 1, 0)
    assert row.split() == ["1/2", "-", "0.500", "1.0"] and len(heading) == len(row)
