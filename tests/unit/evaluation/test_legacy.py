"""utils/evaluation/legacy.py against YOLOv5's stored figures and against arithmetic."""

import numpy as np
import pytest

from duet.utils.evaluation.legacy import (
    LegacyEvaluator,
    LegacyResult,
    measure_classes,
)
from duet.utils.report.console import legacy_table
from tests.coco_reference import detections, ground_truth
from tests.environments import shared_path

# Both sum the same float64 numbers, in another order.
EXACT = {"rtol": 0, "atol": 1e-9}
BOXES = [[10, 10, 30, 30], [50, 50, 250, 280], [300, 10, 340, 90]]


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(shared_path("golden/metrics/metrics.npz")) as file:
        return dict(file)


def measure_stored(stored, case: str):
    """Return figures of the classes with stored ones, and how many objects each has."""
    num_objects = np.bincount(stored[f"{case}_tcls"].astype(np.int64), minlength=80)
    figures = measure_classes(
        stored[f"{case}_conf"],
        stored[f"{case}_pcls"].astype(np.int64),
        stored[f"{case}_tp"],
        num_objects,
    )
    classes = stored[f"{case}_o_cls"]
    np.testing.assert_array_equal(np.flatnonzero(num_objects), classes)
    return tuple(figure[classes] for figure in figures), num_objects[classes]


@pytest.mark.parametrize("case", ["one", "nc3", "nc80", "nc80_missing", "ties"])
def test_legacy_metrics_match_stored_values(stored, case):
    (precision, recall, average_precision), num_objects = measure_stored(stored, case)
    # Of "ties" YOLOv5's order of equal scores is unknown. Its point lies below every score, where
    # that has no effect on precision and recall.
    if case != "ties":
        np.testing.assert_allclose(average_precision, stored[f"{case}_o_ap"], **EXACT)
    np.testing.assert_allclose(precision, stored[f"{case}_o_p"], **EXACT)
    np.testing.assert_allclose(recall, stored[f"{case}_o_r"], **EXACT)
    total = precision + recall
    f1 = 2 * precision * recall / np.where(total > 0, total, 1)
    np.testing.assert_allclose(f1, stored[f"{case}_o_f1"], **EXACT)
    num_correct = np.round(recall * num_objects)
    num_wrong = np.round(num_correct / np.where(precision > 0, precision, 1) - num_correct)
    np.testing.assert_array_equal(num_correct, stored[f"{case}_o_tp"])
    np.testing.assert_array_equal(num_wrong, stored[f"{case}_o_fp"])


def evaluate(images, num_classes: int = 3) -> LegacyResult:
    evaluator = LegacyEvaluator([f"class {index}" for index in range(num_classes)])
    for image_id, (found, objects) in enumerate(images):
        evaluator.add(image_id, found, objects)
    return evaluator.result()


NOTHING_FOUND = detections([], [], [])
NO_OBJECTS = ground_truth([], [])


@pytest.mark.parametrize("images", [
    [],
    [(NOTHING_FOUND, NO_OBJECTS)],
    [(detections(BOXES, [0.9, 0.8, 0.7], [0, 1, 1]), NO_OBJECTS)],
], ids=["no images", "empty images", "false alarms"])  # fmt: skip
def test_evaluation_without_objects_is_zero_or_nan(images):
    result = evaluate(images)
    assert result.means == (0, 0, 0, 0)
    assert result.num_images == len(images)
    for figures in (result.precision, result.recall, result.ap50, result.ap):
        np.testing.assert_array_equal(figures, [np.nan] * 3)


def test_crowds_are_not_counted_as_objects():
    objects = ground_truth([0, 1], BOXES[:2], is_crowd=[True, False])
    result = evaluate([(detections(BOXES[:2], [0.9, 0.8], [0, 1]), objects)])
    np.testing.assert_array_equal(result.num_ground_truth, [0, 1, 0])
    np.testing.assert_allclose(result.means, (1, 1, 0.995, 0.995), **EXACT)


def test_legacy_table_names_its_source():
    result = evaluate([(detections(BOXES[:1], [0.9], [0]), ground_truth([0, 2], BOXES[:2]))])
    lines = legacy_table(result).splitlines()
    assert lines[0].strip().startswith("as YOLOv5 prints it")
    assert [line.split() for line in lines[1:]] == [
        ["class", "images", "labels", "P", "R", "mAP50", "mAP50-95"],
        ["all", "1", "2", "0.5000", "0.5000", "0.4975", "0.4975"],
        ["class", "0", "1", "1", "1.0000", "1.0000", "0.9950", "0.9950"],
        ["class", "2", "1", "1", "0.0000", "0.0000", "0.0000", "0.0000"],
    ]
