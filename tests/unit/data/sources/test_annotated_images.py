"""Annotations of any format become the labels that the same objects have in a label file."""

from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.sources.annotated_images import annotated_images
from duet.utils.data.sources.formats.format import (
    NORMALISED,
    UNKNOWN,
    FileNotes,
    ImageLabels,
    collect,
)
from duet.utils.data.sources.label_file import BrokenLabelError, Labels
from duet.utils.errors import DatasetError

SIZE = 50, 200  # height, width


def labels_of(*objects, annotated=SIZE, size=SIZE, names=("cat", "dog")) -> Labels:
    labels = ImageLabels(Path("a.jpg"), annotated)
    for name, box in objects:
        add = labels.add_outline if isinstance(box, np.ndarray) else labels.add
        add(name, box)
    (image,) = annotated_images(collect([labels], FileNotes()), names, Path("all.json"))
    return image.read_labels(len(names), size)


@pytest.mark.parametrize(
    ("annotated", "box"),
    [
        (NORMALISED, (0.25, 0.25, 0.5, 0.75)),
        (UNKNOWN, (50, 12.5, 100, 37.5)),
        ((100, 400), (100, 25, 200, 75)),  # labelled on a copy of twice the size
    ],
)
def test_coordinates_are_relative_to_what_the_annotation_says(annotated, box):
    found = labels_of(("dog", box), annotated=annotated)
    assert found.boxes_cxcywh_norm.tolist() == [[0.375, 0.5, 0.25, 0.5]]


def test_an_annotation_of_another_image_is_refused_with_both_sizes():
    with pytest.raises(BrokenLabelError, match="640x480 px, and has 200x50"):
        labels_of(("dog", (0, 0, 9, 9)), annotated=(480, 640))


def test_what_reaches_a_little_over_the_edge_is_clipped_and_far_out_is_refused():
    found = labels_of(("dog", (-1, 0, 201.5, 50.25)))
    assert found.boxes_cxcywh_norm.tolist() == [[0.5, 0.5, 1, 1]]
    for box in ((0, 0, 203, 50), (-3, 0, 50, 50), (0, 0, float("nan"), 50)):
        with pytest.raises(BrokenLabelError, match="outside the image"):
            labels_of(("dog", box))


def test_objects_without_area_and_repeated_ones_are_removed_and_counted():
    box = (10, 10, 20, 20)
    found = labels_of(
        ("dog", box), ("cat", box), ("dog", box), ("cat", (5, 5, 5, 9)), ("cat", (9, 5, 5, 9))
    )
    assert found.class_index.tolist() == [1, 0]
    assert found.removed == "2 objects without an area, 1 repeated object"


def test_a_class_that_the_dataset_lacks_is_an_error_that_names_it():
    with pytest.raises(DatasetError, match=r"class 'dog', and .* are \['cat'\]; add it to 'names'"):
        labels_of(("dog", (0, 0, 9, 9)), names=("cat",))


def test_the_first_fault_of_an_image_is_kept_and_what_is_left_out_is_counted():
    image, notes = ImageLabels(Path("b.jpg"), left_out=["crowds", "crowds"]), FileNotes()
    image.refuse("no size")
    image.refuse("no box either")
    notes.left_out["tasks"] = 1
    found = collect([ImageLabels(Path("a.jpg")), image], notes)
    assert found.broken[1] == "no size" and not found.broken[0]
    assert found.left_out == {"crowds": 2, "tasks": 1}


def test_images_of_one_file_are_all_refused_and_named():
    images = [
        *(ImageLabels(Path(f"{name}.jpg"), called=f"task {i}") for i, name in enumerate("aba")),
        ImageLabels(Path("b.jpg"), trouble="it may be b.jpg"),
        ImageLabels(Path("a.jpg"), broken="no size"),
    ]
    found = collect(images, FileNotes())
    assert list(map(bool, found.broken)) == [True, False, True, True, True]
    assert "task 0 and task 2 are both" in found.broken[0] == found.broken[2]
    assert (found.broken[3], found.broken[4]) == ("it may be b.jpg", "no size")
