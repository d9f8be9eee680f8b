"""The loop that checks and keeps what a format yields: one form for all formats."""

from pathlib import Path

import numpy as np

from utils.data.sources.formats.format import (
    NORMALISED,
    UNKNOWN,
    FileNotes,
    ImageLabels,
    collect,
)

TRIANGLE = np.array([[1.0, 2], [9, 2], [4, 8]])


def test_objects_belong_to_their_image_and_classes_are_sorted():
    first, last = ImageLabels(Path("a.jpg"), (100, 200)), ImageLabels(Path("b.jpg"), NORMALISED)
    first.add("dog", (1, 2, 3, 4))
    last.add("cat", (0, 0, 0.5, 1))
    last.add_outline("dog", TRIANGLE)
    found = collect([first, ImageLabels(Path("empty.jpg")), last], FileNotes())
    assert found.paths == ("a.jpg", "empty.jpg", "b.jpg")
    assert found.sizes.tolist() == [[100, 200], list(UNKNOWN), list(NORMALISED)]
    assert found.starts.tolist() == [0, 1, 1, 3]
    assert found.class_names == ("cat", "dog")
    assert found.class_index.tolist() == [1, 0, 1]
    assert found.boxes_xyxy.tolist() == [[1, 2, 3, 4], [0, 0, 0.5, 1], [1, 2, 9, 8]]
    assert [len(found.polygons.outline(index)) for index in range(3)] == [0, 0, 3]
    assert (found.polygons.outline(2) == TRIANGLE).all()


def test_known_class_names_keep_their_order_and_others_follow_sorted():
    image = ImageLabels(Path("a.jpg"))
    for name in ("fox", "ant", "bee"):
        image.add(name, (0, 0, 1, 1))
    found = collect([image], FileNotes(["zebra", "ant"]))
    assert found.class_names == ("zebra", "ant", "bee", "fox")
    assert found.class_index.tolist() == [3, 1, 2]


def test_the_first_fault_of_an_image_is_kept_and_what_is_left_out_is_counted():
    image, notes = ImageLabels(Path("b.jpg"), left_out=["crowds", "crowds"]), FileNotes()
    image.refuse("no size")
    image.refuse("no box either")
    notes.left_out["tasks"] = 1
    found = collect([ImageLabels(Path("a.jpg")), image], notes)
    assert found.broken == {1: "no size"}
    assert found.left_out == {"crowds": 2, "tasks": 1}


def test_images_of_one_file_are_all_refused_and_named():
    images = [
        *(ImageLabels(Path(f"{name}.jpg"), called=f"task {i}") for i, name in enumerate("aba")),
        ImageLabels(Path("b.jpg"), trouble="it may be b.jpg"),
        ImageLabels(Path("a.jpg"), broken="no size"),
    ]
    found = collect(images, FileNotes())
    assert set(found.broken) == {0, 2, 3, 4}
    assert "task 0 and task 2 are both" in found.broken[0] == found.broken[2]
    assert (found.broken[3], found.broken[4]) == ("it may be b.jpg", "no size")
