"""Copy-paste: which objects are copied, where to, and that pixels, boxes and polygons agree."""

import numpy as np
import pytest

from duet.utils.data.augment.copy_paste import (
    CopyPaste,
    choose_copies,
    choose_objects,
    mirror,
    paste,
    why_nothing_is_pasted,
)
from duet.utils.data.image.decoding import Objects, join_objects
from tests.outlines import make_polygons
from tests.shared_files import shared_path


def stored_objects(stored) -> Objects:
    labels = stored["labels"].astype(np.float64)
    polygons = make_polygons([stored[f"segment_{number}"] for number in range(4)])
    return Objects(labels[:, 0].astype(np.int64), labels[:, 1:], polygons)


@pytest.mark.parametrize("case", range(5))
def test_the_stored_choices_give_the_stored_image_and_labels(case):
    with np.load(shared_path("golden/segment/copy_paste.npz")) as stored:
        objects, image = stored_objects(stored), stored["image"].copy()
        width = image.shape[1]
        chosen = choose_copies(stored[f"c{case}_choice"], objects, width)
        copies = mirror(objects, chosen, width)
        polygons = copies.polygons
        found, expected = join_objects(objects, copies), stored[f"c{case}_labels"]
        assert found.class_index.tolist() == expected[:, 0].tolist()
        # Float32 of values up to 128.
        np.testing.assert_allclose(found.boxes_xyxy, expected[:, 1:], rtol=0, atol=2e-5)
        for number in range(len(chosen)):
            outline = stored[f"c{case}_new_segment_{number}"]
            np.testing.assert_allclose(polygons.outline(number), outline, rtol=0, atol=2e-5)
        paste(image, stored["image"][:, ::-1], polygons)
        differs = (image != stored[f"c{case}_image"]).any(axis=2)
        # The stored outlines are truncated to whole pixels: up to one pixel off, all around.
        perimeter = sum(
            np.hypot(*np.diff(polygons.outline(i), axis=0, append=polygons.outline(i)[:1]).T).sum()
            for i in range(len(polygons))
        )
        assert differs.sum() <= perimeter
        assert (image != stored["image"]).any() == bool(len(chosen))


def objects_of(boxes: list, with_polygons: bool = True) -> Objects:
    corners = [[[a, b], [c, b], [c, d], [a, d]] for a, b, c, d in boxes]
    polygons = make_polygons(corners) if with_polygons else None
    return Objects(np.arange(len(boxes)), np.array(boxes, np.float64).reshape(-1, 4), polygons)


def test_a_copy_may_cover_less_than_a_third_of_another_object():
    # The mirrored box of the first is (80, 0, 100, 20); of the second it covers that part.
    for part, is_copied in ((0.29, True), (0.31, False)):
        objects = objects_of([[0, 0, 20, 20], [80 - 10 * (1 - part), 0, 80 + 10 * part, 20]])
        assert choose_copies(np.array([0]), objects, 100).tolist() == [0] * is_copied


def test_copies_keep_away_from_copies():
    objects = objects_of([[0, 0, 20, 20], [5, 0, 25, 20]])
    # Each may go alone; the second would cover the copy of the first.
    assert choose_copies(np.array([1]), objects, 100).tolist() == [1]
    assert choose_copies(np.array([0, 1]), objects, 100).tolist() == [0]


def test_the_share_of_objects_with_polygons_is_tried_in_a_drawn_order():
    objects = objects_of([[i, 0, i + 1, 1] for i in range(40)])
    outlines = [objects.polygons.outline(i)[: 4 * (i % 2)] for i in range(40)]
    objects = objects._replace(polygons=make_polygons(outlines))  # of each second one
    found = choose_objects(CopyPaste(0.3, 7), objects)
    assert len(found) == 6  # of 20
    assert (found % 2 == 1).all()
    assert len(set(found.tolist())) == 6
    np.testing.assert_array_equal(found, choose_objects(CopyPaste(0.3, 7), objects))
    assert found.tolist() != choose_objects(CopyPaste(0.3, 8), objects).tolist()
    assert len(choose_objects(CopyPaste(1.0, 7), objects)) == 20
    assert len(choose_objects(CopyPaste(1.0, 7), objects._replace(polygons=None))) == 0


@pytest.mark.parametrize(
    ("share", "has_mosaics", "has_polygons", "reason"),
    [
        (0.3, True, True, ""),
        (0.0, False, False, ""),
        (0.3, False, True, "copies are pasted into mosaics only"),
        (0.3, True, False, "no label of the training images is a polygon"),
    ],
)
def test_a_reason_is_given_where_nothing_can_be_pasted(share, has_mosaics, has_polygons, reason):
    found = why_nothing_is_pasted(share, has_mosaics, has_polygons)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)
