"""audit.csv, read back."""

import csv
import dataclasses
import os
from pathlib import Path

from tests.unit.data.audit.small_audit import (
    LABELS_XYXY,
    SEEN_XYXY,
    small_findings,
    write_samples,
)
from utils.data.audit.table import COLUMNS, write_table

NAME = '<b>dog\\x1b[2J, "x"'
SIDES = ("xmin", "ymin", "xmax", "ymax")


def written(tmp_path, samples, findings):
    path = tmp_path / "audit.csv"
    write_table(path, findings, samples, ("cat", '<b>dog\x1b[2J, "x"'))
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def box(row, prefix=""):
    return [float(row[prefix + side]) for side in SIDES]


def test_each_finding_is_a_line_with_boxes_in_pixels_and_what_is_suggested(tmp_path):
    samples = write_samples(tmp_path)
    rows = written(tmp_path, samples, small_findings())
    assert [row["kind"] for row in rows] == ["overlooked", "unseen", "swapped", "misplaced"]
    assert [row["image"] for row in rows] == [str(samples[i].image_path) for i in (0, 1, 0, 1)]
    assert {(row["width"], row["height"]) for row in rows} == {("120", "80")}
    assert [float(row["score"]) for row in rows] == [0.75, 0.5, 0.625, 0.25]
    assert [row["label"] for row in rows] == ["", "1", "0", "1"]
    assert [row["class"] for row in rows] == ["", NAME, "cat", NAME]
    assert [row["suggested_class"] for row in rows] == ["cat", "", NAME, NAME]
    assert [row["confidence"] for row in rows] == ["0.7500", "", "0.8750", "0.5000"]
    assert [box(row) for row in rows[1:]] == [LABELS_XYXY[1], LABELS_XYXY[0], LABELS_XYXY[1]]
    assert [box(rows[i], "suggested_") for i in (0, 2, 3)] == SEEN_XYXY
    assert all(rows[0][side] == rows[1][f"suggested_{side}"] == "" for side in SIDES)


def test_a_name_that_is_no_text_is_written_as_it_can_be_read(tmp_path):
    samples = write_samples(tmp_path)
    odd = dataclasses.replace(samples[0], image_path=Path(os.fsdecode(b"a\n\xe9.png")))
    rows = written(tmp_path, [odd, samples[1]], small_findings())
    assert rows[0]["image"] == "a\\n\\xe9.png"
    assert len(rows) == 4


def test_without_findings_there_is_the_header_alone(tmp_path):
    assert written(tmp_path, [], small_findings().take([])) == []
    assert (tmp_path / "audit.csv").read_text().splitlines() == [",".join(COLUMNS)]
