"""The benchmark of the audit: what it plants, and what counts as found."""

import numpy as np
import pytest

from benchmarks.audit import Curve, Image, Planted, Planter, planted_rows
from utils.boxes import pairwise_iou
from utils.data.audit.findings import KINDS, NOTHING, Findings
from utils.detections import Detections, GroundTruth

OVERLOOKED, UNSEEN, SWAPPED, MISPLACED = range(len(KINDS))
SIZE = (300, 600)
NUM_CLASSES = 4
NOTHING_FOUND = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))


def image_of(number):
    """An image with so many labels in a row."""
    left = 20.0 * np.arange(number)
    boxes = np.column_stack([left, np.full(number, 5), left + 16, np.full(number, 45)])
    labels = GroundTruth(np.arange(number) % NUM_CLASSES, boxes)
    return Image(SIZE, NOTHING_FOUND, labels)


def test_each_kind_is_planted_into_its_part_of_the_labels():
    """Of 28 labels in 20 images, a fifth each: 112, with a deviation of about 10."""
    images = [image_of(28)] * 20
    planter = Planter(images, 0.2, NUM_CLASSES, seed=0)
    planted = [planter.plant(image) for image in images]
    errors = np.concatenate([given.error for given in planted])
    counts = {kind: int((errors == kind).sum()) for kind in (UNSEEN, SWAPPED, MISPLACED)}
    counts[OVERLOOKED] = sum(len(given.deleted.class_index) for given in planted)
    assert all(72 < number < 152 for number in counts.values()), counts
    assert len(errors) == 20 * 28 - counts[OVERLOOKED] + counts[UNSEEN]
    for image, given in zip(images, planted, strict=True):
        check(image, given)


def check(image, given):
    """What is planted is what its name says, and nothing else has changed."""
    iou = pairwise_iou(given.labels.boxes_xyxy, image.labels.boxes_xyxy)
    same_class = given.labels.class_index[:, None] == image.labels.class_index
    assert (iou[given.error == UNSEEN] < 0.1).all()
    assert (iou[given.error == SWAPPED].max(axis=1, initial=0) == 1).all()
    assert not (same_class & (iou == 1))[given.error == SWAPPED].any()
    moved = np.where(same_class, iou, 0)[given.error == MISPLACED].max(axis=1, initial=0)
    assert (moved >= 0.2).all()
    assert (moved <= 0.6).all()
    assert (same_class & (iou == 1))[given.error == NOTHING].any(axis=1).all()
    height, width = image.size
    assert (given.labels.boxes_xyxy >= 0).all()
    assert (given.labels.boxes_xyxy <= [width, height, width, height]).all()


def test_the_same_seed_plants_the_same():
    first, second = (
        Planter([image_of(9)], 0.2, NUM_CLASSES, seed=3).plant(image_of(9)) for _ in range(2)
    )
    np.testing.assert_array_equal(first.labels.boxes_xyxy, second.labels.boxes_xyxy)
    np.testing.assert_array_equal(first.error, second.error)


def test_a_finding_counts_where_its_kind_is_planted_and_a_deleted_label_once():
    box = np.array([[0.0, 0, 10, 10]])
    planted = Planted(
        GroundTruth(np.array([0, 1]), np.repeat(box, 2, axis=0)),
        np.array([SWAPPED, NOTHING]),
        GroundTruth(np.array([2]), box),
    )
    rows = [  # kind, label, class seen, what counts
        (OVERLOOKED, NOTHING, 2, True), (OVERLOOKED, NOTHING, 2, False),
        (OVERLOOKED, NOTHING, 1, False), (SWAPPED, 0, 1, True), (SWAPPED, 1, 0, False),
        (MISPLACED, 0, 0, False), (UNSEEN, 0, NOTHING, False),
    ]  # fmt: skip
    kind, label, seen, expected = map(np.array, zip(*rows, strict=True))
    none = np.zeros(len(rows))
    boxes = np.repeat(box, len(rows), axis=0)
    findings = Findings(none.astype(int), kind, none, label, seen, none, boxes)
    assert planted_rows(findings, [planted]).tolist() == expected.tolist()


def test_recall_at_a_precision():
    """Precisions 1, 1/2, 2/3, 3/4, 3/5; 4 were planted."""
    curve = Curve(np.array([0.9, 0.8, 0.7, 0.6, 0.5]), np.array([1, 0, 1, 1, 0], bool), 4)
    assert [curve.recall_at(least) for least in (1, 0.75, 0.7, 0.5)] == [0.25, 0.75, 0.75, 0.75]
    assert curve.lowest_at(0.7) == 0.6
    assert curve.above(0.7) == (3, pytest.approx(2 / 3), 0.5)
    assert Curve(np.zeros(0), np.zeros(0, bool), 0).recall_at(0.5) == 0
