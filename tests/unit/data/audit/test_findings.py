"""Planted detections: which findings they make, in which order, with which score."""

import math

import numpy as np
import pytest

from tests.unit.data.audit.small_audit import detections as found
from tests.unit.data.audit.small_audit import labels
from utils.data.audit.findings import (
    KINDS,
    LEAST_SCORE,
    MISPLACED,
    NOTHING,
    OVERLOOKED,
    SWAPPED,
    UNSEEN,
    Auditor,
    unseen_scores,
)

CAT, DOG = 0, 1
SIZE = (400, 400)
BOX, BESIDE = (0, 0, 100, 100), (200, 200, 300, 300)
SHIFTED = (0, 0, 100, 40)  # IoU 0.4 with BOX
FLOAT32 = 1e-6


def audit(*images, lowest=0.05, known=(True, True)):
    auditor = Auditor(dict.fromkeys(KINDS, lowest), np.array(known))
    for index, (detections, truth) in enumerate(images):
        auditor.add(index, detections, truth, SIZE)
    return auditor.result()


def rows_of(findings):
    """Kind, image, label, class seen, score, of each finding."""
    return [
        (KINDS[kind], image, label, seen, pytest.approx(score, abs=FLOAT32))
        for image, kind, score, label, seen, *_ in zip(*findings, strict=True)
    ]


FINE = found((0.9, CAT, BOX)), labels((CAT, BOX))


def test_each_planted_error_is_found_as_what_it_is_and_nothing_else_is():
    findings = audit(
        FINE,
        (found((0.9, CAT, BOX), (0.75, DOG, BESIDE)), labels((CAT, BOX))),
        (found((0.875, DOG, BOX), (0.25, CAT, BOX)), labels((CAT, BOX))),
        (found((0.8, CAT, SHIFTED), (0.125, CAT, BOX)), labels((CAT, BOX))),
        (found((0.9, CAT, BOX)), labels((CAT, BOX), (DOG, BESIDE))),
        (found(), labels()),
    )
    # All labels are of one size: what is usual is the mean of their logarithms. The class of the
    # unseen one has one label, which counts a sixth beside the five of all.
    seen = [math.log(score + LEAST_SCORE) for score in (0.9, 0.9, 0.875, 0.8, 0.9, 0)]
    below = 5 / 6 * (sum(seen) / len(seen) - math.log(LEAST_SCORE))
    assert rows_of(findings) == [
        (OVERLOOKED, 1, NOTHING, DOG, 0.75),
        (UNSEEN, 4, 1, NOTHING, below / math.log((1 + LEAST_SCORE) / LEAST_SCORE)),
        (SWAPPED, 2, 0, DOG, 0.625),
        (MISPLACED, 3, 0, CAT, 0.8 - 0.125),
    ]
    assert findings.confidence[[0, 2, 3]] == pytest.approx([0.75, 0.875, 0.8])
    assert findings.boxes_xyxy[[0, 2, 3]].tolist() == [list(box) for box in (BESIDE, BOX, SHIFTED)]
    assert np.isnan(findings.confidence[1])
    assert np.isnan(findings.boxes_xyxy[1]).all()


def test_a_label_s_own_class_counts_against_a_swap_though_its_box_is_another():
    seen = found((0.875, DOG, BOX), (0.25, CAT, SHIFTED))
    assert rows_of(audit((seen, labels((CAT, BOX))))) == [
        (SWAPPED, 0, 0, DOG, 0.625),
        (MISPLACED, 0, 0, CAT, 0.25),
    ]


def test_findings_of_a_kind_are_ranked_over_all_images_in_whatever_order_they_come():
    scores = (0.3, 0.7, 0.5)
    images = [(found((score, DOG, BESIDE)), labels()) for score in scores]
    findings = audit(*images)
    assert findings.image_index.tolist() == [1, 2, 0]
    auditor = Auditor(dict.fromkeys(KINDS, 0.05), np.ones(2, bool))
    for index in (2, 0, 1):
        auditor.add(index, *images[index], SIZE)
    np.testing.assert_array_equal(auditor.result().image_index, findings.image_index)


def test_what_is_below_the_lowest_score_is_left_out():
    images = [(found((score, DOG, BESIDE)), labels()) for score in (0.25, 0.5, 0.75)]
    assert audit(*images, lowest=0.5).scores.tolist() == [0.75, 0.5]


def test_labels_of_a_class_that_the_model_does_not_know_are_not_judged():
    swapped = found((0.9, DOG, BOX)), labels((CAT, BOX))
    unseen = found(), labels((CAT, BESIDE))
    fine = found((0.9, DOG, BOX)), labels((DOG, BOX))
    assert {KINDS[kind] for kind in audit(swapped, unseen, fine).kind} == {UNSEEN, SWAPPED}
    assert len(audit(swapped, unseen, fine, known=(False, True)).kind) == 0


def test_small_labels_are_expected_to_be_seen_less():
    """Evidence that falls with size is a straight line; one label lies below it."""
    size, one_class = np.linspace(-4, 0, 9), np.zeros(9, int)
    evidence = size / 2 - 1
    assert unseen_scores(evidence, size, one_class) == pytest.approx(np.zeros(9), abs=1e-12)
    evidence[4] -= math.log(1001)  # from certainty to nothing
    expected = np.zeros(9)
    expected[4] = 1 - 1 / 9  # the line is a ninth of that lower, as the middle turns it nowhere
    assert unseen_scores(evidence, size, one_class) == pytest.approx(expected, abs=1e-9)


def test_labels_of_a_hard_class_are_expected_to_be_seen_less():
    """15 labels of each of two classes, whose evidence is e^2 apart: the means are 1 away from it.

    The usual evidence of a class goes 15 / 20 of the way to its own mean.
    """
    evidence, class_index = np.repeat([0.0, -2.0], 15), np.repeat([1, 3], 15)
    scores = unseen_scores(evidence, np.zeros(30), class_index)
    expected = np.repeat([0, (1 - 15 / 20) / math.log(1001)], 15)
    assert scores == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_where_no_label_is_seen_none_is_doubted(number):
    same = np.full(number, math.log(LEAST_SCORE))
    scores = unseen_scores(same, np.zeros(number), np.arange(number))
    assert scores.tolist() == [0] * number


def test_a_dataset_without_labels_and_detections_has_no_findings():
    findings = audit((found(), labels()))
    assert [len(field) for field in findings] == [0] * len(findings)
    assert [len(field) for field in audit()] == [0] * len(findings)
