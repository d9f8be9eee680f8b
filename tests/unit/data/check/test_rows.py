"""Every object with its fault, where training stops at the first one."""

from pathlib import Path

import numpy as np
import pytest

from utils.data.check.inspection import read_rows, rows_of_text
from utils.data.sources.annotated_images import annotated_images
from utils.data.sources.formats.format import FileNotes, ImageLabels, collect
from utils.data.sources.label_file import BrokenLabelError
from utils.data.sources.labels import ImageFile

SIZE = 100, 200


def annotated(*boxes, size=SIZE, broken="", outline=None):
    labels = ImageLabels(Path("a.jpg"), size, broken=broken)
    for box in boxes:
        labels.add("dog", box)
    if outline is not None:
        labels.add_outline("cat", np.array(outline, np.float64))
    found = collect([labels], FileNotes(["cat", "dog"]))
    (image,) = annotated_images(found, ("cat", "dog"), Path("all.json"))
    return image


def kinds(rows):
    return [(row.place, row.kind, row.is_decided) for row in rows]


@pytest.mark.parametrize(
    ("line", "kind", "is_decided"),
    [
        ("0 0.5 0.5 0.2 0.2", "", True),
        ("1 0.1 0.1 0.9 0.1 0.5 0.9", "", True),
        ("0 0.5 0.5 1.00005 1", "", True),
        ("0 0.1 0.5 0.215 0.2", "overshoot", True),  # 0.0075 over the edge
        ("0 -0.005 0.5 0.2 0.5 0.1 0.9", "overshoot", True),
        ("0 0.1 0.5 0.4 0.2", "out_of_range", True),  # 0.1 over the edge, as numbers it is right
        ("0 1.2 0.5 0.2 0.2", "out_of_range", False),
        ("0 64 32 20 10", "out_of_range", False),
        ("0 inf 0.5 0.2 0.2", "out_of_range", False),
        ("0 nan 0.5 0.2 0.2 0.1 0.1", "out_of_range", False),
        ("0 0.5 0.5 0 0.2", "zero_area", False),
        ("0 0.5 0.1 0.5 0.2 0.5 0.9", "zero_area", False),
        ("2 0.5 0.5 0.2 0.2", "unknown_class", False),
        ("0.5 0.5 0.5 0.2 0.2", "unknown_class", False),
        ("inf 0.5 0.5 0.2 0.2", "unknown_class", False),
        ("0 0.5 0.5 0.2", "broken_label", False),
        ("0 0.5 0.5 0.2 0.2 0.9", "broken_label", False),
        ("dog 0.5 0.5 0.2 0.2", "broken_label", False),
    ],
)
def test_the_fault_of_a_line(line, kind, is_decided):
    assert kinds(rows_of_text(f"\n{line}\n".encode(), 2)) == [("line 2", kind, is_decided)]


def test_the_faults_of_annotated_objects():
    image = annotated(
        (20, 10, 60, 50),
        (20, 10, 60, 50),
        (-1, 0, 100, 100),  # 0.005 of the width
        (-10, 0, 100, 100),
        (30, 30, 30, 60),
        (60, 20, 40, 80),
        outline=[(10, 10), (201, 10), (50, 90)],
    )
    assert kinds(read_rows(image, 2, SIZE)) == [
        ("object 1", "", True),
        ("object 2", "repeated_object", False),
        ("object 3", "overshoot", True),
        ("object 4", "out_of_range", False),
        ("object 5", "zero_area", False),
        ("object 6", "zero_area", False),
        ("object 7", "overshoot", True),
    ]
    with pytest.raises(BrokenLabelError):
        image.read_labels(2, SIZE)


def test_an_annotation_that_cannot_be_read_and_one_of_another_shape_are_told_apart():
    (row,) = read_rows(annotated((1, 1, 9, 9), broken="a box of five numbers"), 2, SIZE)
    assert (row.place, row.kind, row.fault) == ("", "broken_label", "a box of five numbers")
    (row,) = read_rows(annotated((1, 1, 9, 9), size=(300, 200)), 2, SIZE)
    assert (row.place, row.kind) == ("", "other_shape") and "200x300" in row.fault


def test_a_file_of_millions_of_wrong_lines_is_told_in_a_thousand(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x\n" * 1_000_000)
    rows = read_rows(ImageFile(tmp_path / "a.jpg"), 2, SIZE)
    assert len(rows) == 1001 and rows[-1].fault.startswith("1,000 faults")
    assert (rows[0].place, rows[999].place, rows[1000].place) == ("line 1", "line 1000", "")
