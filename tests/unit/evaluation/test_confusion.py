"""`evaluation/coco/confusion.py`: the public YOLOv5's counts, and cases by hand."""

import itertools

import numpy as np
import pytest

from duet.utils.evaluation.coco.confusion import ConfusionCounter
from duet.utils.geometry.boxes import pairwise_iou
from tests.coco_reference import detections, ground_truth, rows_as_detections
from tests.environments import shared_path

HERE, THERE = [10, 10, 30, 30], [60, 60, 90, 90]


def matrix_of(*images, num_classes=2):
    counter = ConfusionCounter(num_classes)
    for found, truth in images:
        counter.add(found, truth)
    return counter.result().matrix().tolist()


def stored_images():
    stored = np.load(shared_path("golden/metrics/metrics.npz"))
    for number in range(8):
        labels = stored[f"pb{number}_lab"]
        found = rows_as_detections(stored[f"pb{number}_det"])
        yield found, ground_truth(labels[:, 0], labels[:, 1:])


def test_confusion_matrix_matches_the_public_one():
    stored = np.load(shared_path("golden/metrics/metrics.npz"))["confusion_matrix_all"]
    matrix = np.array(matrix_of(*stored_images(), num_classes=3))
    # The stored matrix has three more objects, of an image without detections: its labels are not
    # stored. The 94 objects that are, and all 173 detections above 0.25, are where they belong.
    np.testing.assert_array_equal(stored - matrix, [[0] * 4, [0] * 4, [0] * 4, [1, 2, 0, 0]])
    assert matrix[:, :3].sum() == 94 and matrix[:3].sum() == 170


@pytest.mark.parametrize(("found", "truth", "expected"), [
    (detections([], [], []), ground_truth([], []), [[0, 0, 0], [0, 0, 0], [0, 0, 0]]),
    # The better overlap wins, whatever its score and class; the other one is a false alarm.
    # One that loses its best object takes another that it overlaps enough.
    (detections([HERE], [0.25], [0]), ground_truth([0], [HERE]),
     [[0, 0, 0], [0, 0, 0], [1, 0, 0]]),
    (detections([HERE, THERE], [0.9, 0.9], [0, 0]), ground_truth([0], [[0, 0, 40, 40]], [True]),
     [[0, 0, 1], [0, 0, 0], [0, 0, 0]]),  # in a crowd, and beside it
    (detections([HERE], [0.9], [1]),
     ground_truth([0, 0], [HERE, [0, 0, 40, 40]], [False, True]),
     [[0, 0, 0], [1, 0, 0], [0, 0, 0]]),
], ids=["nothing", "at the confidence", "crowd", "object in a crowd"])  # fmt: skip
def test_confusion_matrix_matches_hand_counts(found, truth, expected):
    assert matrix_of((found, truth)) == expected


def test_confusion_pairs_match_greedy_matching():
    random = np.random.Generator(np.random.Philox(3))
    for _ in range(50):
        boxes = random.uniform(0, 12, (40, 2))
        boxes = np.concatenate((boxes, boxes + random.uniform(8, 14, (40, 2))), axis=1)
        labels = random.integers(0, 3, 40)
        found = detections(boxes[:25], [0.9] * 25, labels[:25])
        truth = ground_truth(labels[25:], boxes[25:])
        iou = pairwise_iou(found.boxes_xyxy, truth.boxes_xyxy)
        expected = np.zeros((4, 4), int)
        rows, columns = set(range(25)), set(range(15))
        pairs = sorted(itertools.product(rows, columns), key=lambda pair: -iou[pair])
        for row, column in pairs:
            if row in rows and column in columns and iou[row, column] > 0.45:
                rows.remove(row)
                columns.remove(column)
                expected[labels[row], truth.class_index[column]] += 1
        for row in rows:
            expected[labels[row], 3] += 1
        for column in columns:
            expected[3, truth.class_index[column]] += 1
        assert len(rows) < 20 and matrix_of((found, truth), num_classes=3) == expected.tolist()
