"""Annotations collected image by image: one form for all formats."""

from pathlib import Path

import numpy as np

from utils.data.sources.formats.annotations import NORMALISED, UNKNOWN, AnnotationsBuilder

TRIANGLE = np.array([[1.0, 2], [9, 2], [4, 8]])


def test_objects_belong_to_the_image_before_them():
    builder = AnnotationsBuilder()
    builder.image(Path("a.jpg"), (100, 200))
    builder.object("dog", (1, 2, 3, 4))
    builder.image(Path("empty.jpg"))
    builder.image(Path("b.jpg"), NORMALISED)
    builder.object("cat", (0, 0, 0.5, 1))
    builder.outline("dog", TRIANGLE)
    found = builder.build()
    assert found.paths == ("a.jpg", "empty.jpg", "b.jpg")
    assert found.sizes.tolist() == [[100, 200], list(UNKNOWN), list(NORMALISED)]
    assert found.starts.tolist() == [0, 1, 1, 3]
    assert found.class_names == ("cat", "dog")
    assert found.class_index.tolist() == [1, 0, 1]
    assert found.boxes_xyxy.tolist() == [[1, 2, 3, 4], [0, 0, 0.5, 1], [1, 2, 9, 8]]
    assert [len(found.polygons.outline(index)) for index in range(3)] == [0, 0, 3]
    assert (found.polygons.outline(2) == TRIANGLE).all()


def test_known_class_names_keep_their_order_and_others_follow_sorted():
    builder = AnnotationsBuilder(("zebra", "ant"))
    builder.image(Path("a.jpg"))
    for name in ("fox", "ant", "bee"):
        builder.object(name, (0, 0, 1, 1))
    found = builder.build()
    assert found.class_names == ("zebra", "ant", "bee", "fox")
    assert found.class_index.tolist() == [3, 1, 2]


def test_what_cannot_be_used_is_said_of_its_image_once():
    builder = AnnotationsBuilder()
    builder.image(Path("a.jpg"))
    builder.image(Path("b.jpg"))
    builder.refuse("no size")
    builder.refuse("no box either")
    builder.leave_out("crowds")
    builder.leave_out("crowds")
    found = builder.build()
    assert found.broken == {1: "no size"}
    assert found.left_out == {"crowds": 2}


def test_images_of_one_file_are_all_refused_and_named():
    builder = AnnotationsBuilder()
    for path, called in (("a.jpg", "task 1"), ("b.jpg", "task 2"), ("a.jpg", "task 3")):
        builder.image(Path(path), called=called)
    builder.image(Path("b.jpg"), trouble="it may be b.jpg")
    builder.image(Path("a.jpg"))
    builder.refuse("no size")
    found = builder.build()
    assert set(found.broken) == {0, 2, 3, 4}
    assert "task 1 and task 3 are both" in found.broken[0] == found.broken[2]
    assert (found.broken[3], found.broken[4]) == ("it may be b.jpg", "no size")


def test_nothing_is_annotations_of_no_image():
    found = AnnotationsBuilder().build()
    assert len(found) == 0 and found.class_names == ()
    assert found.boxes_xyxy.shape == (0, 4) and len(found.polygons) == 0
