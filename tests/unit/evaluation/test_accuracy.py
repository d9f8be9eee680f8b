"""Accuracy and the confusion are the stored ones, or reckoned by hand."""

import numpy as np
import pytest

from duet.utils.evaluation.accuracy import ClassificationEvaluator, accuracy_table
from duet.utils.geometry.detections import Classification, GroundTruth
from tests.golden_models import stored

CASES = [f"c{number}" for number in range(5)]


def truth(*classes):
    return GroundTruth(np.array(classes, np.int64), np.zeros((len(classes), 4)))


def evaluate(scores, targets, num_classes=None):
    names = [f"class {index}" for index in range(num_classes or scores.shape[1])]
    evaluator = ClassificationEvaluator(names)
    for index, (row, target) in enumerate(zip(scores, targets, strict=True)):
        evaluator.add(index, Classification(row[None]), truth(int(target)))
    return evaluator.result()


@pytest.mark.parametrize("case", CASES)
def test_accuracies_match_stored_values(case):
    arrays = stored("classify/accuracy")
    logits, targets = arrays[f"{case}_logits"], arrays[f"{case}_targets"]
    result = evaluate(logits, targets)
    # Stored as float32 means.
    wanted = arrays[f"{case}_top1_top5"]
    np.testing.assert_allclose([result.top1, result.top5], wanted, rtol=1e-6)
    per_class = arrays[f"{case}_per_class"]
    if len(targets) > 1 and per_class.size:
        found = np.stack([result.class_top1, result.class_top5], axis=1)
        np.testing.assert_allclose(found, per_class, rtol=1e-6)


def test_confusion_matrix_matches_numpy():
    arrays = stored("classify/accuracy")
    logits, targets = arrays["c0_logits"], arrays["c0_targets"]
    wanted = np.zeros((10, 10), int)
    np.add.at(wanted, (logits.argmax(1), targets), 1)
    matrix = evaluate(logits, targets).confusion.matrix()
    np.testing.assert_array_equal(matrix[:-1, :-1], wanted)
    assert matrix[-1].sum() == matrix[:, -1].sum() == 0


@pytest.mark.parametrize(("scores", "targets", "top1", "top5"), [
    ([[0.9, 0.1], [0.9, 0.1]], [0, 1], 0.5, 1.0),  # of fewer than five classes all are first
    ([[0.2, 0.4, 0.4]] * 2, [1, 2], 0.5, 1.0),  # of equal scores the lower class comes first
    ([[np.nan] + [0.1] * 5, [0.5] + [0.1] * 5], [0, 0], 0.5, 0.5),
    ([[np.inf] + [0.1] * 5, [0.5] + [0.1] * 5], [0, 0], 0.5, 0.5),
], ids=["few classes", "equal scores", "NaN", "infinite"])  # fmt: skip
def test_top1_and_top5_match_hand_computed_scores(scores, targets, top1, top5):
    result = evaluate(np.float32(scores), targets)
    assert (result.top1, result.top5) == (top1, top5)


def test_image_without_a_class_does_not_count():
    evaluator = ClassificationEvaluator(["a", "b"])
    evaluator.add(0, Classification(np.float32([[0.9, 0.1]])), truth())
    result = evaluator.result()
    assert np.isnan([result.top1, result.top5]).all() and np.isnan(result.class_top1).all()
    assert accuracy_table(result).splitlines()[1].split() == ["all", "0", "nan", "nan"]


def test_class_without_images_has_nan_accuracy_and_no_row():
    result = evaluate(np.float32([[0.9, 0.1, 0], [0.2, 0.8, 0]]), [0, 0])
    np.testing.assert_array_equal(result.class_top1, [0.5, np.nan, np.nan])
    lines = [line.split() for line in accuracy_table(result).splitlines()]
    assert lines[1:] == [["all", "2", "0.5000", "1.0000"],
                         ["class", "0", "2", "0.5000", "1.0000"]]  # fmt: skip
