"""Planted detections: which findings they make, in which order, with which score."""

import math

import numpy as np
import pytest

from duet.models.evaluation.audit.findings import (
    KINDS,
    LEAST_SCORE,
    MISPLACED,
    NOTHING,
    OVERLOOKED,
    SWAPPED,
    UNSEEN,
    Auditor,
    examine,
    unseen_scores,
)
from duet.utils.geometry.detections import Detections, GroundTruth

CAT, DOG = 0, 1
SIZE = (400, 400)
BOX, BESIDE = (0, 0, 100, 100), (200, 200, 300, 300)
SLIGHTLY_SHIFTED = (0, 0, 100, 80)  # IoU 0.8 with BOX
SHIFTED = (0, 0, 100, 40)  # 0.4
FAR_SHIFTED = (80, 0, 180, 100)  # 20 of 180 columns: 1/9
HARDLY_TOUCHING = (95, 0, 195, 100)  # 5 of 195
FLOAT32 = 1e-6


def detections(*rows):
    """Detections of (score, class, xyxy) each, highest score first."""
    rows = sorted(rows, key=lambda row: -row[0])
    return Detections(
        np.array([box for *_, box in rows], np.float32).reshape(-1, 4),
        np.array([score for score, *_ in rows], np.float32),
        np.array([kind for _, kind, _ in rows], np.int64),
    )


def labels(*rows):
    """Labels of (class, xyxy) each."""
    return GroundTruth(
        np.array([kind for kind, _ in rows], np.int64),
        np.array([box for _, box in rows], np.float64).reshape(-1, 4),
    )


def audit(*images, lowest=0.05, known=(True, True)):
    auditor = Auditor(dict.fromkeys(KINDS, lowest), np.array(known))
    for index, (detections, truth) in enumerate(images):
        auditor.add(index, detections, truth, SIZE)
    return auditor.result()


def rows_of(findings):
    """Kind, image, label, class seen, score, of each finding."""
    return [
        (x.kind, x.image, x.label, x.seen_class, pytest.approx(x.score, abs=FLOAT32))
        for x in findings
    ]


def test_finding_keeps_image_number_beyond_float32():
    auditor = Auditor(dict.fromkeys(KINDS, 0.0), np.array([True]))
    for number in range(3):
        auditor.add(number, detections((0.9, CAT, BOX)), labels((CAT, BOX)), SIZE)
    auditor.add(2**24 + 1, detections(), labels((CAT, BOX)), SIZE)
    assert [(x.kind, x.image) for x in auditor.result()] == [(UNSEEN, 2**24 + 1)]


@pytest.mark.parametrize(
    ("seen", "expected", "left_over"),
    [
        # own, near, anything, other, shifted of a cat's label at BOX
        ((CAT, BOX), (0.5, 0.5, 0.5, 0, 0), []),
        ((CAT, SLIGHTLY_SHIFTED), (0.5, 0.5, 0.5, 0, 0), []),
        ((CAT, SHIFTED), (0, 0.5, 0.5, 0, 0.5), []),
        ((CAT, FAR_SHIFTED), (0, 0, 0.5, 0, 0.5), []),
        ((CAT, HARDLY_TOUCHING), (0, 0, 0, 0, 0), [0]),
        ((DOG, BOX), (0, 0, 0.5, 0.5, 0), []),
        ((DOG, SHIFTED), (0, 0, 0.5, 0, 0), [0]),
        ((DOG, FAR_SHIFTED), (0, 0, 0, 0, 0), [0]),
    ],
)
def test_detection_is_classified_by_class_and_overlap(seen, expected, left_over):
    evidence = examine(detections((0.5, *seen)), labels((CAT, BOX)))
    names = ("own", "near", "anything", "other", "shifted")
    assert tuple(getattr(evidence, name)[0] for name in names) == expected
    assert evidence.left_over.tolist() == left_over


def test_detection_is_assigned_to_its_best_label():
    evidence = examine(detections((0.9, DOG, BOX)), labels((CAT, BOX), (DOG, SLIGHTLY_SHIFTED)))
    assert evidence.other.tolist() == [0, 0]  # it has a label of its own
    assert evidence.own.tolist() == pytest.approx([0, 0.9])
    # It touches one label with IoU 40/120, the other with 1/9.
    two = labels((CAT, (0, 0, 100, 100)), (CAT, (0, 80, 100, 180)))
    assert examine(detections((0.5, CAT, (0, 60, 100, 100))), two).shifted.tolist() == [0.5, 0]


def test_only_the_best_unlabelled_object_per_place_remains():
    for own_score, left_over in ((0.5, [0]), (0.25, [])):
        seen = detections((own_score, CAT, BOX), (0.75, CAT, FAR_SHIFTED))
        assert examine(seen, labels((CAT, BOX))).left_over.tolist() == left_over
    rows = (0.5, CAT, BESIDE), (0.75, DOG, BESIDE), (0.25, CAT, BOX)
    assert examine(detections(*rows), labels()).left_over.tolist() == [0, 2]


FINE = detections((0.9, CAT, BOX)), labels((CAT, BOX))


def test_planted_errors_are_found_and_nothing_else():
    findings = audit(
        FINE,
        (detections((0.9, CAT, BOX), (0.75, DOG, BESIDE)), labels((CAT, BOX))),
        (detections((0.875, DOG, BOX), (0.25, CAT, BOX)), labels((CAT, BOX))),
        (detections((0.8, CAT, SHIFTED), (0.125, CAT, BOX)), labels((CAT, BOX))),
        (detections((0.9, CAT, BOX)), labels((CAT, BOX), (DOG, BESIDE))),
        (detections(), labels()),
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
    suggested = [x for x in findings if x.kind != UNSEEN]
    assert [x.confidence for x in suggested] == pytest.approx([0.75, 0.875, 0.8])
    assert [x.seen_xyxy for x in suggested] == [BESIDE, BOX, SHIFTED]
    assert math.isnan(findings[1].confidence) and findings[1].seen_xyxy == ()


def test_findings_are_ranked_and_low_scores_dropped():
    images = [(detections((score, DOG, BESIDE)), labels()) for score in (0.25, 0.75, 0.5)]
    assert [x.image for x in audit(*images)] == [1, 2, 0]
    assert [x.score for x in audit(*images, lowest=0.5)] == [0.75, 0.5]


def test_labels_of_unknown_classes_are_not_judged():
    swapped = detections((0.9, DOG, BOX)), labels((CAT, BOX))
    unseen = detections(), labels((CAT, BESIDE))
    fine = detections((0.9, DOG, BOX)), labels((DOG, BOX))
    assert {x.kind for x in audit(swapped, unseen, fine)} == {UNSEEN, SWAPPED}
    assert audit(swapped, unseen, fine, known=(False, True)) == []


def test_expected_evidence_depends_on_size_and_class():
    """Evidence that falls with size is a straight line; one label lies below it.

    Then 15 labels of each of two classes, whose evidence is e^2 apart: the means are 1 away from
    it, and the usual evidence of a class goes 15 / 20 of the way to its own mean.
    """
    size, one_class = np.linspace(-4, 0, 9), np.zeros(9, int)
    evidence = size / 2 - 1
    assert unseen_scores(evidence, size, one_class) == pytest.approx(np.zeros(9), abs=1e-12)
    evidence[4] -= math.log(1001)  # from certainty to nothing
    expected = np.zeros(9)
    expected[4] = 1 - 1 / 9  # the line is a ninth of that lower, as the middle turns it nowhere
    assert unseen_scores(evidence, size, one_class) == pytest.approx(expected, abs=1e-9)
    evidence, class_index = np.repeat([0.0, -2.0], 15), np.repeat([1, 3], 15)
    expected = np.repeat([0, (1 - 15 / 20) / math.log(1001)], 15)
    assert unseen_scores(evidence, np.zeros(30), class_index) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_labels_are_not_doubted_when_none_is_detected(number):
    same = np.full(number, math.log(LEAST_SCORE))
    scores = unseen_scores(same, np.zeros(number), np.arange(number))
    assert scores.tolist() == [0] * number
    assert audit((detections(), labels())) == audit() == []
