"""What several views show of an object becomes one whole box, and two objects stay two."""

import numpy as np
import pytest

from duet.utils.evaluation.joining import join_views
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.geometry.boxes import pairwise_iou
from duet.utils.geometry.detections import Detections
from duet.utils.geometry.tiling import Tiling
from tests.coco_reference import rows_as_detections

SETTINGS = SuppressionSettings(confidence_threshold=0.25, iou_threshold=0.45)
SIZE = (300, 420)  # of the image, (height, width)
TILING = Tiling(128, 0.25)  # tops 0, 86, 172; lefts 0, 73, 146, 219, 292: 42 px and more in common


def regions(size=SIZE, tiling=TILING, whole=True):
    height, width = tiling.tile_size(size)
    tiles = [(left, top, left + width, top + height) for top, left in tiling.corners(size)]
    return np.array([(0, 0, size[1], size[0])] * whole + tiles)


def in_view(boxes, classes, scores, region, smallest=4.0, off=0.0):
    """What a perfect detector finds in a view: each object as far as it is visible.

    Args:
        smallest: what is narrower is not found.
        off: pixels by which each side of a found box may be off.
    """
    left, top, right, bottom = region
    visible = np.clip(boxes, [left, top, left, top], [right, bottom, right, bottom])
    random = np.random.Generator(np.random.Philox(left + 1000 * top))
    visible = visible + random.uniform(-off, off, visible.shape)
    visible = np.clip(visible, [left, top, left, top], [right, bottom, right, bottom])
    rows = np.flatnonzero(((visible[:, 2:] - visible[:, :2]) >= smallest).all(axis=1))
    found = (visible[rows] - [left, top, left, top]).astype(np.float32)
    order = np.argsort(-np.asarray(scores)[rows], kind="stable")
    return Detections(
        found[order], np.float32(scores)[rows][order], np.asarray(classes, np.int64)[rows][order]
    )


def joined(boxes, classes=None, scores=None, settings=SETTINGS, whole=True, views=None, off=0.0,
           smallest_whole=1e9):  # fmt: skip
    """Objects -> what is left of them; by default the view of the whole image shows none."""
    boxes = np.float64(boxes).reshape(-1, 4)
    classes = np.zeros(len(boxes), np.int64) if classes is None else classes
    scores = np.linspace(0.9, 0.5, len(boxes)) if scores is None else scores
    places = regions(whole=whole) if views is None else views
    found = [
        in_view(boxes, classes, scores, place, smallest_whole if whole and not i else 4.0, off)
        for i, place in enumerate(places.tolist())
    ]
    return join_views(found, places, settings)


def assert_same_boxes(found, expected, atol=0.0):
    expected = np.float32(expected).reshape(-1, 4)
    assert len(found.boxes_xyxy) == len(expected)
    nearest = np.abs(found.boxes_xyxy[:, None] - expected[None]).max(axis=2)
    assert sorted(nearest.argmin(axis=0).tolist()) == list(range(len(expected)))
    assert nearest.min(axis=0).max(initial=0) <= atol


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("side", [5, 42, 43, 100, 128, 129, 290])
def test_object_cut_anywhere_is_joined_into_one_whole_box(side, whole):
    # Every place is met, also those where tiles show slivers of it, at borders and corners.
    places = regions(whole=whole)
    for top in range(0, SIZE[0] - side + 1, 37):
        for left in range(0, SIZE[1] - side + 1, 23):
            box = [left, top, left + side, top + side]
            smallest = 30 if whole else 1e9
            found = joined(box, views=places, whole=whole, smallest_whole=smallest)
            assert_same_boxes(found, box)


def test_row_of_objects_across_borders_stays_separate():
    row = [[left, 70, left + 18, 100] for left in range(2, 400, 20)]  # two pixels apart
    assert_same_boxes(joined(row), row)
    column = [[70, top, 130, top + 18] for top in range(2, 280, 20)]
    assert_same_boxes(joined(column), column)


def test_two_objects_meeting_at_a_border_stay_two():
    border = regions(whole=False)[0][2]  # the right of the first tile: 128
    pair = [[border - 60, 10, border, 60], [border, 10, border + 60, 60]]
    assert_same_boxes(joined(pair), pair)
    # The second view does not go on with the first: what both show lies elsewhere.
    pair = [[border - 100, 10, border + 5, 40], [border - 5, 60, border + 100, 100]]
    assert_same_boxes(joined(pair), pair)


def test_classes_are_joined_only_when_agnostic():
    boxes = [[60, 20, 220, 90], [60, 20, 221, 90]]
    found = joined(boxes, classes=[0, 1])
    assert_same_boxes(found, boxes)
    assert found.class_index.tolist() == [0, 1]
    agnostic = SuppressionSettings(0.25, 0.45, class_agnostic=True)
    found = joined(boxes, classes=[3, 1], scores=[0.6, 0.8], settings=agnostic)
    assert_same_boxes(found, boxes[1])
    assert (found.class_index.tolist(), found.scores.tolist()) == ([1], [np.float32(0.8)])


def detections_of(*views):
    """Views given as rows of left, top, right, bottom, score, class."""
    return [rows_as_detections(view) for view in views]


# The whole, and two tiles with 28 px in common. 0.7 px before its border, a box is still cut.
PAIR = np.array([[0, 0, 200, 100], [0, 0, 114, 100], [86, 0, 200, 100]])


def test_whole_image_box_replaces_its_parts():
    parts = [20, 5, 113.5, 95, 0.9, 0], [0, 6, 90, 95, 0.8, 0]
    found = join_views(detections_of([20, 5, 180, 95, 0.4, 0], *parts), PAIR, SETTINGS)
    assert found.boxes_xyxy.tolist() == [[20, 5, 180, 95]]
    assert found.scores.tolist() == [np.float32(0.4)]


def test_joined_box_takes_the_best_score_of_its_pieces():
    parts = [20, 5, 113.5, 95, 0.7, 0], [0, 6, 90, 94, 0.8, 0]
    found = join_views(detections_of([], *parts), PAIR, SETTINGS)
    assert found.boxes_xyxy.tolist() == [[20, 5, 176, 95]]
    assert found.scores.tolist() == [np.float32(0.8)]


def test_cut_box_without_a_continuation_stays():
    cut = [20, 5, 114, 95, 0.7, 0]
    found = join_views(detections_of([], cut, []), PAIR, SETTINGS)
    assert found.boxes_xyxy.tolist() == [cut[:4]]
    # What the other tile has inside is something else: it agrees on too little.
    found = join_views(detections_of([], cut, [0, 70, 60, 95, 0.6, 0]), PAIR, SETTINGS)
    assert found.boxes_xyxy.tolist() == [cut[:4], [86, 70, 146, 95]]


def test_small_object_over_a_large_one_stays():
    small, large = [95, 40, 113, 60, 0.9, 0], [5, 5, 195, 95, 0.8, 0]
    small_on_the_right = [9, 40, 27, 60, 0.9, 0]
    found = join_views(detections_of([large], [small], [small_on_the_right]), PAIR, SETTINGS)
    assert_same_boxes(found, [small[:4], large[:4]])


def test_equal_scores_keep_the_view_order():
    boxes = np.float32([[10, 10, 30, 30], [50, 50, 70, 70], [100, 10, 130, 40], [150, 60, 170, 90]])
    rows = [[*box, 0.5, 0] for box in boxes.tolist()]
    right = [[box[0] - 86, box[1], box[2] - 86, *box[3:]] for box in rows[2:]]
    found = join_views(detections_of([], rows[:2], right), PAIR, SETTINGS)
    assert found.boxes_xyxy.tolist() == boxes.tolist()
    # A joined box has the place of its first piece.
    left = [[20, 5, 113.5, 95, 0.5, 0], [30, 70, 40, 80, 0.5, 1]]
    found = join_views(detections_of([], left, [0, 6, 90, 94, 0.5, 0]), PAIR, SETTINGS)
    assert found.boxes_xyxy.tolist() == [[20, 5, 176, 95], [30, 70, 40, 80]]


@pytest.mark.parametrize("off", [0.5, 1.5])
def test_slightly_shifted_parts_are_still_joined(off):
    boxes = [[40, 40, 180, 150], [200, 30, 260, 290], [20, 200, 150, 260], [300, 100, 410, 120]]
    # Parts of one object may differ by `off` each; 0.8 px of 128 is what may lie before a border.
    found = joined(boxes, off=off if off < 1 else 0.8)
    assert len(found.scores) == len(boxes)
    assert (pairwise_iou(found.boxes_xyxy, np.float64(boxes)).max(axis=0) > 0.9).all()


def test_tile_order_does_not_matter():
    random = np.random.Generator(np.random.Philox(3))
    corners = random.uniform(0, [300, 200], (25, 2))
    boxes = np.concatenate((corners, corners + random.uniform(10, 110, (25, 2))), axis=1)
    classes, scores = random.integers(0, 3, 25), random.uniform(0.3, 0.9, 25)
    places = regions()
    expected = joined(boxes, classes, scores, views=places)
    turned = np.concatenate((places[:1], places[:0:-1]))
    found = joined(boxes, classes, scores, views=turned)
    np.testing.assert_array_equal(found.class_index, expected.class_index)
    np.testing.assert_array_equal(found.scores, expected.scores)
    # Of equal boxes in two tiles the first stays: a float32 of 400 px, and one that is shifted.
    np.testing.assert_allclose(found.boxes_xyxy, expected.boxes_xyxy, atol=1e-4)
