"""audit.csv read back, and what audit.html shows."""

import csv
import dataclasses
import os
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from duet.models.evaluation.audit.findings import MISPLACED, OVERLOOKED, SWAPPED, UNSEEN, Finding
from duet.models.evaluation.audit.report import COLUMNS, Audit, audit_page, write_table
from duet.utils.data.sources.samples import Sample
from tests.small import noise

NAME = '<b>dog\x1b[2J, "x"'
SHOWN_NAME = NAME.replace("\x1b", r"\x1b")
LABELS_CXCYWH = np.array([[0.25, 0.5, 0.25, 0.5], [0.75, 0.25, 0.5, 0.25]], np.float32)
LABELS_XYXY = [[15, 20, 45, 60], [60, 10, 120, 30]]
SIDES = ("xmin", "ymin", "xmax", "ymax")
FINDINGS = (
    Finding(OVERLOOKED, 0.75, 0, seen_class=0, confidence=0.75, seen_xyxy=(10, 20, 30, 50)),
    Finding(UNSEEN, 0.5, 1, label=1),
    Finding(SWAPPED, 0.625, 0, 0, 1, 0.875, (15, 20, 45, 60)),
    Finding(MISPLACED, 0.25, 1, 1, 1, 0.5, (64, 10, 120, 60)),
)


@pytest.fixture
def audit(tmp_path):
    """Two images with two labels each, one of each class, and a finding of each kind."""
    samples = []
    for number, name in enumerate(("a, b.png", "<i>ü.png")):
        path = tmp_path / name
        path.write_bytes(cv2.imencode(".png", noise(80, 120, number))[1].tobytes())
        samples.append(Sample(path, 80, 120, np.array([0, 1]), LABELS_CXCYWH))
    figures = {"mAP50": 0.5}
    return Audit("<u>data", "val", ("best.pt",), figures, samples, ("cat", NAME), FINDINGS)


def written(tmp_path, audit):
    path = tmp_path / "audit.csv"
    write_table(path, audit)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def box(row, prefix=""):
    return [float(row[prefix + side]) for side in SIDES]


def test_csv_row_has_pixel_boxes_and_the_suggestion(tmp_path, audit):
    rows = written(tmp_path, audit)
    samples = audit.samples
    assert [row["kind"] for row in rows] == ["overlooked", "unseen", "swapped", "misplaced"]
    assert [row["image"] for row in rows] == [str(samples[i].image_path) for i in (0, 1, 0, 1)]
    assert {(row["width"], row["height"]) for row in rows} == {("120", "80")}
    assert [float(row["score"]) for row in rows] == [0.75, 0.5, 0.625, 0.25]
    assert [row["label"] for row in rows] == ["", "1", "0", "1"]
    assert [row["class"] for row in rows] == ["", SHOWN_NAME, "cat", SHOWN_NAME]
    assert [row["suggested_class"] for row in rows] == ["cat", "", SHOWN_NAME, SHOWN_NAME]
    assert [row["confidence"] for row in rows] == ["0.7500", "", "0.8750", "0.5000"]
    assert [box(row) for row in rows[1:]] == [LABELS_XYXY[1], LABELS_XYXY[0], LABELS_XYXY[1]]
    seen = [box(rows[i], "suggested_") for i in (0, 2, 3)]
    assert seen == [list(FINDINGS[i].seen_xyxy) for i in (0, 2, 3)]
    assert all(rows[0][side] == rows[1][f"suggested_{side}"] == "" for side in SIDES)


def test_csv_cell_is_never_a_formula(tmp_path, audit):
    odd = dataclasses.replace(audit.samples[0], image_path=Path("=a.png"))
    changed = audit._replace(samples=[odd, audit.samples[1]], class_names=("=1+1", "@b"))
    rows = written(tmp_path, changed)
    assert {row["class"] for row in rows} | {row["suggested_class"] for row in rows} == {
        "", "'=1+1", "'@b"
    }  # fmt: skip
    assert rows[0]["image"] == "'=a.png"


def test_report_escapes_odd_names_and_keeps_empty_header(tmp_path, audit):
    odd = dataclasses.replace(audit.samples[0], image_path=Path(os.fsdecode(b"a\n\xe9.png")))
    rows = written(tmp_path, audit._replace(samples=[odd, audit.samples[1]]))
    assert rows[0]["image"] == "a\\n\\xe9.png" and len(rows) == 4
    assert written(tmp_path, audit._replace(findings=())) == []
    assert (tmp_path / "audit.csv").read_text().splitlines() == [",".join(COLUMNS)]
    assert ": no findings." in audit_page(audit._replace(findings=()), top=1)


def test_page_shows_top_crops_of_each_kind(tmp_path, audit):
    text = audit_page(audit._replace(findings=FINDINGS[:1] * 5, split="train"), top=3)
    assert text.count("<figure ") == text.count("<img ") == 3
    # A click enlarges a picture: its box to tick lies before it, in one label.
    assert len(re.findall(r'<label><input type="checkbox"[^>]*><img [^>]*></label>', text)) == 3
    assert "input:checked + img" in text and "<script" not in text
    assert "5 findings on 1 image are worth a look" in text and "labelled: 5<" in text
    assert "learn those of their training set" in text
    audit.samples[0].image_path.unlink()
    text = audit_page(audit, top=8)
    assert text.count("<figure ") == 4 and text.count("no image") == 2
