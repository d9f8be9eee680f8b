"""What utils/report prints of a validation and of epochs, and how stages are timed."""

import csv

import pytest

import duet.models.graph  # noqa: F401  registers all heads
from duet.models.blocks.registry import find_block
from duet.utils.evaluation.coco.metric import MaskResult
from duet.utils.report.console import COLUMNS, ROWS_A_HEADING, Costs, EpochTable, metrics_table
from duet.utils.report.results import Results
from duet.utils.tasks import TASKS
from tests.coco_reference import detections, evaluate, ground_truth
from tests.small import RESULT_COLUMNS

SMALL, LARGE = [10, 10, 30, 30], [50, 50, 250, 280]
IMAGES = {1: (detections([SMALL, LARGE], [0.9, 0.8], [0, 0]),
              ground_truth([0, 2, 2], [SMALL, LARGE, SMALL]))}  # fmt: skip


def test_metrics_table_lists_classes_then_coco_summary():
    lines = metrics_table(evaluate(IMAGES, 3)).splitlines()
    assert lines[0].split() == ["class", "images", "labels", "P", "R", "mAP50", "mAP50-95"]
    # Class 0 has its object found first, and the one false alarm after it; class 2 nothing.
    assert [line.split() for line in lines[1:4]] == [
        ["all", "1", "3", "0.5000", "0.5000", "0.5000", "0.5000"],
        ["class", "0", "1", "1", "1.0000", "1.0000", "1.0000", "1.0000"],
        ["class", "2", "1", "2", "0.0000", "0.0000", "0.0000", "0.0000"],
    ]
    # Sizes: class 0 has a small object, class 2 a small and a large one, none a medium one.
    assert [line.split() for line in lines[4:]] == [
        ["COCO", "summary,", "sizes", "by", "the", "labelled", "areas"],
        ["AP", "0.5000", "AP50", "0.5000", "AP75", "0.5000"],
        ["APsmall", "0.5000", "APmedium", "-", "APlarge", "0.0000"],
        ["AR1", "0.5000", "AR10", "0.5000", "AR100", "0.5000"],
        ["ARsmall", "0.5000", "ARmedium", "-", "ARlarge", "0.0000"],
    ]  # fmt: skip


def test_mask_metrics_stand_below_box_metrics_in_80_columns():
    result = evaluate(IMAGES, 3)
    lines = metrics_table(MaskResult(result, result)).splitlines()
    assert max(map(len, lines)) <= 80
    tables = [line.split()[3:] for line in lines if line.split()[0] == "class" and "P(" in line]
    assert tables == [[f"{name}({of})" for name in COLUMNS] for of in "BM"]


def test_results_row_has_a_cell_for_each_column_of_the_run(tmp_path):
    results = Results()
    # As a version wrote them that had no recall yet, and another loss.
    results.columns, results.rows = ["epoch", "train/angle_loss"], [["0", "0.25"]]
    results.append({name: 1 / 3 for name in RESULT_COLUMNS})
    results.append({name: 7 for name in RESULT_COLUMNS})
    results.write(tmp_path / "results.csv")
    with open(tmp_path / "results.csv", newline="", encoding="utf-8") as file:
        first, second, third = csv.DictReader(file)
    assert list(first) == ["epoch", "train/angle_loss", *RESULT_COLUMNS[1:]]
    assert first == dict.fromkeys(first, "") | {"epoch": "0", "train/angle_loss": "0.25"}
    assert second == dict.fromkeys(first, "0.333333") | {"train/angle_loss": ""}
    assert third == dict.fromkeys(first, "7") | {"train/angle_loss": ""}


LOSSES = {"box": "box", "objectness": "obj", "classification": "cls"}
FIGURES = {"precision": "P", "recall": "R", "mAP_0.5": "mAP50", "mAP_0.5:0.95": "mAP50-95"}
SLOW = Costs(9999.9, 1234.4, 1.0, None)
NUMBERS = [0.0988, 10.5, 0.038, 0.7125, 0.652, 0.684, 0.394]


def test_values_stand_under_their_names_in_80_columns():
    heading, row = EpochTable(LOSSES, FIGURES).lines(
        7, 1000, NUMBERS, Costs(12.34, 25.55, 0.04, None)
    )
    assert heading.split() == [
        "epoch",
        *LOSSES.values(),
        *FIGURES.values(),
        "seconds",
        "img/s",
        "wait",
    ]
    assert row.split() == [
        "7/1000", "0.099", "10.500", "0.038", "0.713", "0.652", "0.684", "0.394", "12.3",
        "25.6", "4%",
    ]  # fmt: skip
    assert len(heading) == len(row)
    for name, cell in zip(heading.split(), row.split(), strict=True):
        assert heading.index(name) + len(name) == row.index(cell) + len(cell)
    waiting = EpochTable(LOSSES, FIGURES).lines(1000, 1000, NUMBERS, SLOW)
    assert waiting[1].endswith("  9999.9  1234 100%") and max(map(len, waiting)) == 80


def test_gpu_rows_show_memory():
    costs = Costs(12.34, 99.96, 0.0, 3 * 2**29)
    heading, row = EpochTable(LOSSES, FIGURES).lines(7, 1000, NUMBERS, costs)
    assert heading.endswith(" wait  GPU GiB") and row.endswith("   0%     1.50")
    assert len(heading) == len(row)


def test_table_without_detections_has_only_the_total_row():
    nothing = evaluate({1: (detections([], [], []), ground_truth([0], [SMALL]))}, 3)
    assert [line.split()[0] for line in metrics_table(nothing).splitlines()[:3]] == [
        "class", "all", "COCO",
    ]  # fmt: skip


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_rows_of_every_task_fit_into_80_columns(task):
    head = find_block(task.head).kind
    names = head.row_names()
    assert names.keys() <= head.metric_names.keys() and set(task.fitness) & names.keys()
    numbers = [0.5] * (len(head.loss_names) + len(names))
    for line in EpochTable(head.loss_names, names).lines(1000, 1000, numbers, SLOW):
        assert len(line) <= 80


def test_heading_repeats_at_intervals():
    table = EpochTable(LOSSES, FIGURES)
    counts = [len(table.lines(epoch, 60, NUMBERS, SLOW)) for epoch in range(1, 61)]
    due = [index for index, number in enumerate(counts) if number == 2]
    assert due == [0, ROWS_A_HEADING, 2 * ROWS_A_HEADING]
