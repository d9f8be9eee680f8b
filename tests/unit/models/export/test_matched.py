"""What two sides find: the same thing, a close call, or a fault. Expected values by hand."""

from __future__ import annotations

import numpy as np
import pytest

from models.export.compared import BOX, SCORES, TOLERANCES, fault_of_rows, largest_difference
from models.export.matched import Candidates, Limits, fault_of, find, match
from utils.detections import Detections
from utils.evaluation.nms import SuppressionSettings

FLOAT32 = TOLERANCES["float32"]
BOX_A, SHIFTED, APART = (0, 0, 100, 100), (20, 0, 120, 100), (300, 300, 400, 400)  # IoU 2/3 and 0


def limits(top_all=100, top_per_class=100, iou=0.45):
    return Limits(SuppressionSettings(0.25, iou, max_detections=top_all), top_per_class)


def detections(*rows):
    """Of (box, score, class)."""
    boxes, scores, classes = zip(*rows, strict=True) if rows else ((), (), ())
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(scores, np.float32),
        np.array(classes, np.int64),
    )


def fault(found, expected, predicted=None, **changes):
    """The fault, where the model predicts all that is found, if nothing else is said."""
    sides = (found, expected) if predicted is None else (predicted,)
    boxes, scores, classes = (np.concatenate(field) for field in zip(*sides, strict=True))
    rows = np.zeros((len(scores), 8), np.float32)
    rows[:, 4] = 1
    rows[np.arange(len(rows)), 5 + classes] = scores
    pairs = match(found, expected, FLOAT32)
    candidates = Candidates(boxes, rows)
    return fault_of(found, expected, candidates, pairs, limits(**changes), FLOAT32)


def test_the_same_in_another_order_is_matched():
    first, second = (BOX_A, 0.9, 1), (APART, 0.8995, 1)
    pairs = match(detections(first, second), detections(second, first), FLOAT32)
    assert pairs.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    "other",
    [((0, 0, 100, 98.9), 0.9, 1), (BOX_A, 0.898, 1), (BOX_A, 0.9, 2)],
    ids=["IoU 0.989", "score", "class"],
)
def test_what_differs_beyond_the_tolerance_is_no_match(other):
    one = detections((BOX_A, 0.9, 1))
    assert len(match(detections(other), one, FLOAT32)) == 0
    assert fault(detections(other), one, predicted=one)


def test_a_thing_is_matched_once():
    twice = detections((BOX_A, 0.9, 1), (BOX_A, 0.9, 1))
    assert len(match(twice, detections((BOX_A, 0.9, 1)), FLOAT32)) == 1
    assert "only the file finds class 1, score 0.9000, at 0.0, 0.0, 100.0, 100.0" in fault(
        twice, detections((BOX_A, 0.9, 1))
    )


def test_a_thin_box_is_matched_by_its_sides():
    thin, moved = ((50, 0, 50.05, 400), 0.9, 1), ((50.03, 0, 50.08, 400), 0.9, 1)
    assert len(match(detections(thin), detections(moved), FLOAT32)) == 1
    assert (
        len(
            match(
                detections(((50, 0, 50, 0), 0.9, 1)), detections(((50, 0, 50, 0), 0.9, 1)), FLOAT32
            )
        )
        == 1
    )


def test_the_overlap_of_boxes_without_width_is_a_close_call():
    """A step of float32 at 200 px, 1.5e-5, moves one aside: the IoU is 1 or 0."""
    kept, thin = ((200, 0, 200 + 2e-5, 400), 0.9, 1), ((200 + 3e-5, 0, 200 + 5e-5, 400), 0.8, 1)
    assert fault(detections(kept, thin), detections(kept)) == ""
    assert fault(detections(kept), detections(kept, thin)) == ""
    inside = ((200, 0, 200 + 2e-5, 400), 0.8, 1)
    assert fault(detections(kept, inside), detections(kept)) == ""
    beside, half = ((201, 0, 201, 400), 0.8, 1), ((200, 0, 200, 100), 0.8, 1)
    for other in (beside, half):
        assert fault(detections(kept, other), detections(kept)).startswith("only the file")
    wide = ((200, 0, 200.1, 400), 0.9, 1)
    assert fault(detections(wide, kept), detections(wide)).startswith("only the file")


def test_a_missing_thing_is_a_fault_of_either_side():
    one, none = detections((BOX_A, 0.9, 1)), detections()
    assert fault(none, one).startswith("only the model finds class 1")
    assert fault(one, none).startswith("only the file finds class 1")
    assert fault(none, none) == ""


def test_a_score_at_the_threshold_is_a_close_call():
    assert fault(detections((BOX_A, 0.2505, 1)), detections()) == ""
    assert fault(detections((BOX_A, 0.2525, 1)), detections()) != ""


def test_either_of_two_overlapping_boxes_of_one_score_may_stay():
    assert fault(detections((BOX_A, 0.9, 1)), detections((SHIFTED, 0.9005, 1))) == ""
    assert fault(detections((BOX_A, 0.9, 1)), detections((SHIFTED, 0.88, 1))) != ""
    assert fault(detections((BOX_A, 0.9, 1)), detections((SHIFTED, 0.9005, 2))) != ""


def test_a_box_that_the_model_does_not_predict_is_no_close_call():
    one, moved = detections((BOX_A, 0.9, 1)), detections(((2, 0, 102, 100), 0.9, 1))
    assert fault(moved, one) == ""
    assert fault(moved, one, predicted=one) == (
        "the file finds class 1, score 0.9000, at 2.0, 0.0, 102.0, 100.0, which the model does not "
        "predict"
    )


@pytest.mark.parametrize(
    ("second", "is_close"), [(0.9, True), (0.8985, True), (0.897, False)], ids=str
)
def test_either_of_two_classes_of_one_score_may_be_the_best(second, is_close):
    """A thing has its best class alone; each score may be off by 0.001."""
    one, removing = (BOX_A, 0.9, 1), (SHIFTED, 0.95, 2)
    for found, expected in (
        ([(BOX_A, second, 2)], [one]),
        ([removing], [removing, one]),  # of class 2 it goes
    ):
        assert (fault_of_a_tie(found, expected, second) == "") is is_close


@pytest.mark.parametrize("other", [(), ((APART, 0.9, 2),), ((BOX_A, 0.9, 0),)], ids=len)
def test_a_tie_of_classes_does_not_explain_that_neither_is_found(other):
    fault = fault_of_a_tie([*other], [*other, (BOX_A, 0.9, 1)], 0.9)
    assert fault.startswith("only the model finds class 1")


def fault_of_a_tie(found, expected, second):
    """The fault where the model says class 1 of BOX_A by 0.9, and class 2 by a second score."""
    found, expected = detections(*found), detections(*expected)
    rows = np.zeros((len(expected.scores), 8), np.float32)
    rows[:, 4] = 1
    rows[np.arange(len(rows)), 5 + expected.class_index] = expected.scores
    rows[-1, 7] = second
    candidates, pairs = Candidates(expected.boxes_xyxy, rows), match(found, expected, FLOAT32)
    return fault_of(found, expected, candidates, pairs, limits(), FLOAT32)


def test_a_class_below_the_best_is_no_close_call():
    row = np.array([[0, 0, 100, 100, 1, 0.9, 0.5, 0.5]], np.float32)
    one = detections((BOX_A, 0.9, 0))
    pairs, candidates = np.empty((0, 2), np.int64), Candidates(one.boxes_xyxy, row)
    wrong = detections((BOX_A, 0.5, 1))
    fault = fault_of(wrong, detections(), candidates, pairs, limits(), FLOAT32)
    assert fault.startswith("only the file finds class 1")


@pytest.mark.parametrize("class_index", [-1, -6, 3, 10**9])
def test_a_class_that_the_model_does_not_have_is_a_fault(class_index):
    one = detections((BOX_A, 0.9, 1))
    strange = detections((BOX_A, 0.9, class_index))
    assert "does not predict" in fault(strange, one, predicted=one)


def test_a_box_that_nms_should_have_removed_is_a_fault():
    kept = (BOX_A, 0.9, 1)
    assert fault(detections(kept, (SHIFTED, 0.8, 1)), detections(kept)).startswith("only the file")


def test_an_overlap_at_the_threshold_is_a_close_call():
    kept = (BOX_A, 0.9, 1)
    found = detections(kept, (SHIFTED, 0.8, 1))  # 80 * 100 of 12000
    assert fault(found, detections(kept), iou=0.66) == ""
    assert fault(found, detections(kept), iou=0.64) != ""


def test_the_last_of_as_many_as_there_may_be_is_a_close_call():
    best, last, other = (BOX_A, 0.9, 1), (APART, 0.6, 1), ((600, 0, 640, 40), 0.6005, 1)
    assert fault(detections(best, last), detections(best, other), top_all=2) == ""
    assert fault(detections(best, last), detections(best, other), top_per_class=2) == ""
    assert fault(detections(best, last), detections(best, other)) != ""
    assert fault(detections(best, last), detections(best), top_all=1) != ""


def test_what_fills_the_place_of_a_close_call_is_one():
    """The file removes one of two boxes at the threshold, and has room for what comes last."""
    kept, other, last = (BOX_A, 0.9, 1), (SHIFTED, 0.8, 1), (APART, 0.5, 1)
    found, expected, changes = detections(kept, last), detections(kept, other), {"iou": 0.66}
    for limit in ("top_all", "top_per_class"):
        assert fault(found, expected, **changes, **{limit: 2}) == ""
        assert fault(found, expected, **changes, **{limit: 3}).startswith("only the file")
    more = detections(kept, last, ((500, 500, 600, 600), 0.4, 1))  # than there may be
    assert fault(more, expected, **changes, top_all=2).startswith("only the file")


def test_each_class_has_its_own_limit():
    rows = np.zeros((4, 7), np.float32)
    rows[:, :4] = [(50, 50, 10, 10), (150, 50, 10, 10), (250, 50, 10, 10), (350, 50, 10, 10)]
    rows[:, 4] = 1
    rows[:3, 5] = 0.9, 0.8, 0.7
    rows[3, 6] = 0.6
    assert find(rows, limits(top_per_class=2)).scores.tolist() == pytest.approx([0.9, 0.8, 0.6])
    assert find(rows, limits(top_all=2)).class_index.tolist() == [0, 0]
    assert len(find(rows[:0], limits()).scores) == 0


def test_rows_apart_are_told_with_both_values():
    expected = np.full((2, 3, 7), 0.5, np.float32)
    found = expected.copy()
    found[1, 2, 6], found[0, 1, 3] = 0.75, 0.625
    assert largest_difference(found, expected, SCORES) == 0.25
    assert largest_difference(found, expected, BOX) == 0.125
    assert fault_of_rows(found, expected, SCORES, 0.25) == ""
    text = (
        "row 2 of image 1: a score of 0.75, the model's is 0.5; a difference of at most 0.1 is "
        "accepted"
    )
    assert fault_of_rows(found, expected, SCORES, 0.1) == text
    found[0, 0, 0] = np.nan
    assert fault_of_rows(found, expected, BOX, 1).startswith("row 0 of image 0: a box of nan px")
