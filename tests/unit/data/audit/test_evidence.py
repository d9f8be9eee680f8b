"""One image's detections held against its labels, with boxes whose overlaps are plain."""

import numpy as np
import pytest

from tests.unit.data.audit.small_audit import detections, labels
from utils.data.audit import evidence
from utils.data.audit.evidence import examine

CAT, DOG = 0, 1
BOX = (0, 0, 100, 100)
BESIDE = (300, 300, 400, 400)
SLIGHTLY_SHIFTED = (0, 0, 100, 80)  # IoU 0.8 with BOX
SHIFTED = (0, 0, 100, 40)  # 0.4
FAR_SHIFTED = (80, 0, 180, 100)  # 20 of 180 columns: 1/9
HARDLY_TOUCHING = (95, 0, 195, 100)  # 5 of 195


def found(*rows):
    return detections(*sorted(rows, key=lambda row: -row[0]))


def of_one_label(*detections):
    result = examine(found(*detections), labels((CAT, BOX)))
    values = {name: field.tolist()[0] for name, field in result.labels._asdict().items()}
    return values, result.left_over.tolist()


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        (BOX, {"own": 0.5, "near": 0.5, "anything": 0.5, "shifted": 0}),
        (SLIGHTLY_SHIFTED, {"own": 0.5, "near": 0.5, "anything": 0.5, "shifted": 0}),
        (SHIFTED, {"own": 0, "near": 0.5, "anything": 0.5, "shifted": 0.5}),
        (FAR_SHIFTED, {"own": 0, "near": 0, "anything": 0.5, "shifted": 0.5}),
        (HARDLY_TOUCHING, {"own": 0, "near": 0, "anything": 0, "shifted": 0}),
    ],
)
def test_a_detection_of_the_class_counts_by_how_far_it_overlaps(box, expected):
    values, left_over = of_one_label((0.5, CAT, box))
    assert {name: values[name] for name in expected} == expected
    assert values["other"] == 0
    assert left_over == ([0] if box == HARDLY_TOUCHING else [])


@pytest.mark.parametrize(
    ("box", "other", "anything"),
    [(BOX, 0.5, 0.5), (SHIFTED, 0, 0.5), (FAR_SHIFTED, 0, 0)],
)
def test_a_detection_of_another_class_counts_where_it_finds_the_label(box, other, anything):
    values, left_over = of_one_label((0.5, DOG, box))
    assert (values["other"], values["anything"]) == (other, anything)
    assert values["own"] == values["near"] == values["shifted"] == 0
    assert left_over == ([] if box == BOX else [0])


def test_another_class_that_has_a_label_of_its_own_says_nothing_of_this_one():
    result = examine(found((0.9, DOG, BOX)), labels((CAT, BOX), (DOG, SLIGHTLY_SHIFTED)))
    assert result.labels.other.tolist() == [0, 0]
    assert result.labels.own.tolist() == pytest.approx([0, 0.9])


def test_a_shifted_detection_belongs_to_the_label_that_it_touches_most():
    """It touches one label with IoU 40/120, the other with 1/9."""
    two = labels((CAT, (0, 0, 100, 100)), (CAT, (0, 80, 100, 180)))
    result = examine(found((0.5, CAT, (0, 60, 100, 100))), two)
    assert result.labels.shifted.tolist() == [0.5, 0]


def test_an_object_beside_a_label_that_is_found_is_left_over():
    """The label has a detection of its own, so the other is no shifted one of it."""
    values, left_over = of_one_label((0.5, CAT, BOX), (0.75, CAT, FAR_SHIFTED))
    assert values["own"] == 0.5
    assert left_over == [0]
    _, left_over = of_one_label((0.25, CAT, BOX), (0.75, CAT, FAR_SHIFTED))
    assert left_over == []


def test_of_what_is_left_over_at_one_place_the_best_class_stays():
    rows = (0.5, CAT, BESIDE), (0.75, DOG, BESIDE), (0.25, CAT, BOX)
    assert examine(found(*rows), labels()).left_over.tolist() == [0, 2]


def test_where_nothing_is_found_there_is_no_evidence():
    result = examine(found(), labels((CAT, BOX), (DOG, BESIDE)))
    assert all(field.tolist() == [0, 0] for field in result.labels)
    assert result.left_over.tolist() == []
    assert examine(found(), labels()).labels.own.shape == (0,)


def test_labels_in_several_blocks_have_the_evidence_of_one(monkeypatch):
    random = np.random.default_rng(0)
    corners = random.uniform(0, 200, (60, 2))
    boxes = np.hstack([corners, corners + random.uniform(20, 120, (60, 2))])
    detections = found(
        *zip(random.random(40), random.integers(3, size=40), boxes[:40], strict=True)
    )
    truth = labels(*zip(random.integers(3, size=20), boxes[40:], strict=True))
    whole = examine(detections, truth)
    assert (whole.labels.own > 0).any()
    assert (whole.labels.shifted > 0).any()
    monkeypatch.setattr(evidence, "PAIRS", 40 * 7)
    parts = examine(detections, truth)
    np.testing.assert_array_equal(np.array(parts.labels), np.array(whole.labels))
    np.testing.assert_array_equal(parts.left_over, whole.left_over)
