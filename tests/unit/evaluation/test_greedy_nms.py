"""utils/evaluation/greedy_nms.py: the rule told box by box, and where rounding would show."""

import tracemalloc

import numpy as np
import pytest

from utils.boxes import pairwise_iou
from utils.evaluation import greedy_nms


def kept_one_by_one(boxes_xyxy, group, iou_threshold, max_kept):
    """Apply the greedy rule, a box at a time."""
    overlaps = pairwise_iou(boxes_xyxy, boxes_xyxy) > iou_threshold
    overlaps &= group[:, None] == group
    kept = []
    for row in range(len(boxes_xyxy)):
        if len(kept) < max_kept and not overlaps[row, kept].any():
            kept.append(row)
    return np.array(kept, np.int64)


@pytest.mark.parametrize("num_groups", [1, 3])
@pytest.mark.parametrize(("first", "last"), [(128, 2048), (3, 11), (8, 8), (1, 2)])
def test_stages_change_nothing(monkeypatch, num_groups, first, last):
    monkeypatch.setattr(greedy_nms, "FIRST_STAGE", first)
    monkeypatch.setattr(greedy_nms, "LAST_STAGE", last)
    random = np.random.Generator(np.random.Philox(1))
    for count in (0, 1, 7, 60, 150):
        # On a grid of whole pixels boxes coincide, touch, lack area and meet thresholds exactly.
        corner = random.integers(-6, 6, (count, 2))
        size = random.integers(0, 7, (count, 2))
        boxes_xyxy = np.concatenate((corner, corner + size), axis=1).astype(np.float32)
        group = random.integers(0, num_groups, count) * 1000 - 1
        for threshold in (0.0, 0.25, 0.5, 1.0):
            for max_kept in (1, 5, 1000):
                np.testing.assert_array_equal(
                    greedy_nms.suppress_greedily(boxes_xyxy, group, threshold, max_kept),
                    kept_one_by_one(boxes_xyxy, group, threshold, max_kept),
                )


@pytest.mark.parametrize(("pairs", "crowd", "last"), [(1, 1, 2), (40, 1, 50), (300, 3, 2048)])
def test_crowds_compared_part_by_part_change_nothing(monkeypatch, pairs, crowd, last):
    monkeypatch.setattr(greedy_nms, "PAIRS", pairs)
    monkeypatch.setattr(greedy_nms, "CROWD", crowd)
    monkeypatch.setattr(greedy_nms, "FIRST_STAGE", min(last, 20))
    monkeypatch.setattr(greedy_nms, "LAST_STAGE", last)
    random = np.random.Generator(np.random.Philox(5))
    lengths = [200, 0, 150, 50]
    centre, size = random.uniform(0, 9, (400, 2)), random.uniform(1, 12, (400, 2))
    boxes_xyxy = np.concatenate((centre - size, centre + size), axis=1).astype(np.float32)
    group, images = random.integers(0, 2, 400), np.split(np.arange(400), np.cumsum(lengths)[:-1])
    for threshold in (0.0, 0.3, 0.7, 0.95):
        expected = [
            index[kept_one_by_one(boxes_xyxy[index], group[index], threshold, 60)]
            for index in images
        ]
        together = greedy_nms.suppress_greedily(boxes_xyxy, group, threshold, 60, lengths)
        np.testing.assert_array_equal(together, np.concatenate(expected))


def heaps(num_rows, num_heaps):
    """Return boxes that coincide but for a pixel's part, heap after heap, best first."""
    random = np.random.Generator(np.random.Philox(6))
    left = 30.0 * (np.arange(num_rows) * num_heaps // num_rows)
    corner = np.stack((left, np.zeros(num_rows)), axis=1) + random.normal(0, 0.3, (num_rows, 2))
    return np.concatenate((corner, corner + 25), axis=1).astype(np.float32)


@pytest.mark.parametrize(("num_heaps", "num_kept"), [(1, 1), (8, 8), (100, 100)])
def test_memory_does_not_grow_with_the_pairs_of_boxes_that_overlap(num_heaps, num_kept):
    # Of 8 heaps a stage has 4 images of 2048 boxes, 8 million pairs: 1 GB if listed at once.
    boxes_xyxy = np.tile(heaps(16000, num_heaps), (4, 1))
    tracemalloc.start()
    try:
        row = greedy_nms.suppress_greedily(
            boxes_xyxy, np.zeros(64000, np.int64), 0.5, 300, [16000] * 4
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(row) == 4 * num_kept
    # Measured: about 100 bytes for each box, 150 for each pair that is compared at once.
    assert peak < 64000 * 200 + 2 * greedy_nms.PAIRS * 150


@pytest.mark.parametrize("stage", [1, 7, 128])
def test_images_together_keep_what_each_keeps_alone(monkeypatch, stage):
    monkeypatch.setattr(greedy_nms, "FIRST_STAGE", stage)
    random = np.random.Generator(np.random.Philox(2))
    lengths = [0, 40, 3, 0, 90, 1]
    centre, size = random.uniform(0, 60, (134, 2)), random.uniform(0, 40, (134, 2))
    boxes_xyxy = np.concatenate((centre - size, centre + size), axis=1).astype(np.float32)
    group = random.integers(0, 2, 134)
    for threshold in (0.0, 0.3, 0.7):
        for max_kept in (2, 9, 1000):
            rows = np.split(np.arange(134), np.cumsum(lengths)[:-1])
            alone = [
                index[kept_one_by_one(boxes_xyxy[index], group[index], threshold, max_kept)]
                for index in rows
            ]
            together = greedy_nms.suppress_greedily(boxes_xyxy, group, threshold, max_kept, lengths)
            np.testing.assert_array_equal(together, np.concatenate(alone))


def test_no_image_keeps_nothing():
    nothing = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    assert len(greedy_nms.suppress_greedily(*nothing, 0.5, 10, [])) == 0


@pytest.mark.parametrize("threshold", [0.01, 0.2, 0.5, 0.6, 0.95])
def test_overlaps_near_the_threshold_are_all_found(threshold):
    # Pairs whose IoU is the threshold but for rounding: shifted along x, along y and along both, or
    # one inside the other at a side. The search beside a box must leave none of them out.
    random = np.random.Generator(np.random.Philox(3))
    size = np.exp(random.uniform(-3, 6, (400, 2)))
    common = 2 * threshold / (1 + threshold)  # of the area of one
    part_x = np.concatenate((np.full(100, common), np.ones(100), random.uniform(common, 1, 200)))
    shift = (1 - np.stack((part_x, common / part_x), axis=1)) * size
    corner = np.arange(400)[:, None] * np.array([3000.0, 1])
    one, other = (np.concatenate((x, x + size), axis=1) for x in (corner, corner + shift))
    inside = one[300:].copy()
    inside[::2, 2] -= (1 - threshold) * size[300::2, 0]
    inside[1::2, 1] += (1 - threshold) * size[301::2, 1]
    other[300:] = inside
    boxes_xyxy = np.concatenate((one, other)).astype(np.float32)
    group = np.tile(np.arange(400) % 7, 2)
    expected = kept_one_by_one(boxes_xyxy, group, threshold, 1000)
    assert 410 < len(expected) < 790
    np.testing.assert_array_equal(
        greedy_nms.suppress_greedily(boxes_xyxy, group, threshold, 1000), expected
    )


def kept(boxes_xyxy, group, iou_threshold, max_kept=100):
    """Return the rows that `suppress_greedily` keeps, as a list."""
    boxes_xyxy, threshold = np.asarray(boxes_xyxy, np.float32), float(np.float32(iou_threshold))
    return greedy_nms.suppress_greedily(boxes_xyxy, np.array(group), threshold, max_kept).tolist()


@pytest.mark.parametrize("offset", [0.0, -1000.0])
def test_an_overlap_at_the_threshold_stays(offset):
    boxes = np.array([[0, 0, 4, 2], [2, 0, 4, 2]]) + offset  # IoU 1/2
    assert kept(boxes, [0, 0], 0.5) == [0, 1]
    assert kept(boxes, [0, 0], 0.499) == [0]


def test_overlaps_are_computed_in_float64():
    # 4800002 / 8000003 is 1e-9 above the float32 nearest to 0.6, and rounds to it in float32.
    assert kept([[0, 0, 1, 8000003], [0, 0, 1, 4800002]], [0, 0], 0.6) == [0]


def test_a_removed_box_removes_nothing():
    chain = [[0, 0, 10, 1], [4, 0, 14, 1], [8, 0, 18, 1]]  # IoU 3/7 between neighbours
    assert kept(chain, [5, 5, 5], 0.4) == [0, 2]
    assert kept(chain, [5, 7, 5], 0.4) == [0, 1, 2]


def test_what_lies_beyond_the_first_thousands_is_found():
    boxes = np.tile([0.0, 0, 20, 20], (5000, 1))
    boxes[[3000, 4999]] += [[0, 100, 0, 100], [0, 200, 0, 200]]
    assert kept(boxes, np.zeros(5000, np.int64), 0.5, 50) == [0, 3000, 4999]


def test_coordinates_of_any_size_keep_groups_apart():
    boxes = [[0, 0, 1e-30, 1], [0, 0, 1e-30, 1], [1e30, 0, 2e30, 1], [1e30, 0, 2e30, 1]]
    assert kept(boxes, [0, 0, 0, -1], 0.5) == [0, 2, 3]


NO_AREA = {
    "not a number": [np.nan, 0, 20, np.nan],
    "infinite width": [-np.inf, 0, np.inf, 20],
    "infinite centre": [-np.inf, -np.inf, -np.inf, -np.inf],
    "infinite at one side": [0, 0, np.inf, 20],
    "negative size": [20, 20, 0, 0],
    "negative width": [20, 0, 0, 20],
    "negative height": [0, 20, 20, 0],
    "no height": [0, 5, 20, 5],
}


@pytest.mark.parametrize("box", NO_AREA.values(), ids=NO_AREA)
def test_box_that_is_no_finite_rectangle_overlaps_nothing(box):
    good = [0, 0, 20, 20]
    for threshold in (0.0, 0.5, 1.0):
        assert kept([box], [0], threshold) == [0]
        assert kept([box, box, box], [0, 0, 0], threshold) == [0, 1, 2]
        assert kept([box, box, box], [0, 0, 0], threshold, max_kept=2) == [0, 1]
    assert kept([good, box, good, box, good], [0] * 5, 0.5) == [0, 1, 3]
    assert kept([box, good, good, box], [0] * 4, 0.5, max_kept=2) == [0, 1]


def test_boxes_that_are_no_finite_rectangle_leave_the_others_as_they_are():
    random = np.random.Generator(np.random.Philox(4))
    lengths = [0, 300, 1, 200]
    centre, size = random.uniform(0, 60, (501, 2)), random.uniform(1, 40, (501, 2))
    boxes_xyxy = np.concatenate((centre - size, centre + size), axis=1).astype(np.float32)
    without_bad, bad = boxes_xyxy.copy(), random.choice(501, 60, replace=False)
    boxes_xyxy[bad] = np.resize(np.array(list(NO_AREA.values()), np.float32), (60, 4))
    without_bad[bad] = 0  # these overlap nothing either
    group, images = random.integers(0, 2, 501), np.split(np.arange(501), np.cumsum(lengths)[:-1])
    for threshold in (0.0, 0.3, 0.7):
        for max_kept in (2, 30, 1000):
            expected = [
                index[kept_one_by_one(without_bad[index], group[index], threshold, max_kept)]
                for index in images
            ]
            together = greedy_nms.suppress_greedily(boxes_xyxy, group, threshold, max_kept, lengths)
            np.testing.assert_array_equal(together, np.concatenate(expected))
