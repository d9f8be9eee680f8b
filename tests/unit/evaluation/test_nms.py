"""utils/evaluation/nms.py against stored cases and a direct, slow form of the greedy rule."""

import json
from pathlib import Path

import numpy as np
import pytest

from models.inference.predictor import suppression_settings
from tests.shared_files import shared_path
from utils.boxes import cxcywh_to_xyxy, pairwise_iou
from utils.cli.val_config import parse_val_flags
from utils.data.sources.samples import Sample, table_of
from utils.data.sources.splits import only_classes
from utils.errors import UserError
from utils.evaluation.greedy_nms import suppress_greedily
from utils.evaluation.nms import SuppressionSettings, best_rows, non_max_suppression


@pytest.fixture(scope="module")
def stored():
    with np.load(shared_path("golden/nms/predictions.npz")) as predictions:
        images = dict(predictions)
    with np.load(shared_path("golden/nms/outputs.npz")) as outputs:
        expected = dict(outputs)
    cases = json.loads(shared_path("golden/nms/cases.json").read_text())
    return cases, images, expected


def as_rows(detections) -> np.ndarray:
    """Return (K, 6): x1, y1, x2, y2, score, class, as in the stored outputs."""
    boxes_xyxy, scores, class_index = detections
    return np.concatenate((boxes_xyxy, scores[:, None], class_index[:, None]), axis=1)


def predictions(num_rows: int, num_classes: int, seed: int, levels: int = 0) -> np.ndarray:
    """Draw decoded predictions; with levels, class scores take only that many values."""
    random = np.random.Generator(np.random.Philox(seed))
    centre, size = random.uniform(0, 200, (num_rows, 2)), random.uniform(5, 80, (num_rows, 2))
    scores = random.uniform(0, 1, (num_rows, 1 + num_classes))
    if levels:
        scores = np.ceil(scores * levels) / levels
    return np.concatenate((centre, size, scores), axis=1).astype(np.float32)


def direct_nms(decoded, confidence, iou_threshold, max_detections):
    """Do multi-label NMS one candidate at a time, as the rule is told: (K, 6) rows."""
    boxes_xyxy = cxcywh_to_xyxy(decoded[:, :4])
    scores = decoded[:, 5:] * decoded[:, 4:5]
    candidates = [
        (-scores[row, label], row, label)
        for row in range(len(decoded))
        for label in range(scores.shape[1])
        if scores[row, label] > confidence
    ]
    kept: list[tuple[int, int]] = []
    for _, row, label in sorted(candidates):
        rivals = [other for other, other_label in kept if other_label == label]
        iou = pairwise_iou(boxes_xyxy[[row]], boxes_xyxy[rivals])
        if len(kept) < max_detections and not (iou > iou_threshold).any():
            kept.append((row, label))
    rows = [(*boxes_xyxy[row], scores[row, label], label) for row, label in kept]
    return np.array(rows, np.float32).reshape(-1, 6)


def assert_same_but_for_ties(found: np.ndarray, expected: np.ndarray, tied_scores: np.ndarray):
    """Compare rows; they may differ at equal scores, since the stored sort is not stable."""
    np.testing.assert_array_equal(found[:, 4], expected[:, 4])
    different = (found != expected).any(axis=1)
    assert np.isin(found[different, 4], tied_scores).all()


def test_stored_cases_are_met(stored):
    cases, images, outputs = stored
    num_outputs, num_exact = 0, 0
    for case in cases:
        for number, decoded in enumerate(images[case["pred"]]):
            found = as_rows(
                non_max_suppression(
                    decoded,
                    SuppressionSettings(
                        case["conf"],
                        case["iou"],
                        class_agnostic=case["agnostic"],
                        classes=case["classes"],
                        max_detections=case["max_det"],
                        multi_label=case["multi_label"],
                    ),
                )
            )
            scores = decoded[:, 5:] * decoded[:, 4:5]
            values, counts = np.unique(scores[scores > case["conf"]], return_counts=True)
            expected = outputs[f"c{case['id']}_i{number}"]
            assert_same_but_for_ties(found, expected, values[counts > 1])
            num_outputs += 1
            num_exact += np.array_equal(found, expected)
    # Eight outputs, all of one image with many saturated, equal scores, have ties in another order.
    assert (num_outputs, num_exact) == (408, 400)


@pytest.mark.parametrize(("num_classes", "levels"), [(1, 0), (4, 0), (4, 3), (1, 1)])
@pytest.mark.parametrize("max_detections", [5, 1000])
def test_result_is_that_of_the_rule_told_directly(num_classes, levels, max_detections):
    decoded = predictions(400, num_classes, seed=num_classes + 10 * levels, levels=levels)
    settings = SuppressionSettings(0.1, 0.5, max_detections=max_detections)
    found = as_rows(non_max_suppression(decoded, settings))
    expected = direct_nms(decoded, 0.1, 0.5, max_detections)
    assert 0 < len(expected) <= max_detections
    np.testing.assert_array_equal(found, expected)


def test_search_beyond_the_first_prefixes_is_exact():
    # 12,000 boxes in five tight heaps: one of each is kept, and the last few, which lie elsewhere.
    boxes_xyxy = np.tile(np.arange(5)[:, None] * 50 + [0.0, 0, 20, 20], (2400, 1))
    boxes_xyxy[[3000, 9000, 11999]] += [[0, 100, 0, 100], [0, 200, 0, 200], [0, 300, 0, 300]]
    group = np.zeros(12000, np.int64)
    kept = suppress_greedily(boxes_xyxy.astype(np.float32), group, 0.5, 100)
    np.testing.assert_array_equal(kept, [0, 1, 2, 3, 4, 3000, 9000, 11999])


def test_best_class_alone_is_kept_unless_multi_label():
    decoded = np.array([[50, 50, 20, 20, 0.5, 0.4, 0.8, 0.6]], np.float32)
    best = non_max_suppression(decoded, SuppressionSettings(0.1, 0.5, multi_label=False))
    every = non_max_suppression(decoded, SuppressionSettings(0.1, 0.5))
    np.testing.assert_array_equal(best.class_index, [1])
    np.testing.assert_array_equal(every.class_index, [1, 2, 0])
    # Products of float32 numbers, rounded once.
    np.testing.assert_allclose(every.scores, [0.4, 0.3, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(every.boxes_xyxy, [[40, 40, 60, 60]] * 3)


def test_a_validation_in_training_suppresses_as_val_does_by_default():
    flags = parse_val_flags(["--weights", "F"])
    of_val = suppression_settings(flags, multi_label=True)
    assert vars(of_val) == vars(SuppressionSettings()) == {
        "confidence_threshold": 0.001, "iou_threshold": 0.6, "class_agnostic": False,
        "classes": None, "max_detections": 300, "multi_label": True,
    }  # fmt: skip


@pytest.mark.parametrize("multi_label", [True, False])
def test_a_score_equal_to_the_confidence_threshold_is_no_candidate(multi_label):
    # Far apart; scores 0.25, just above it, and 0.25 by objectness alone.
    above = np.nextafter(np.float32(0.5), np.float32(1))
    decoded = np.array(
        [[50, 50, 20, 20, 0.5, 0.5], [150, 50, 20, 20, 0.5, above], [250, 50, 20, 20, 0.25, 1]],
        np.float32,
    )
    found = non_max_suppression(decoded, SuppressionSettings(0.25, 0.5, multi_label=multi_label))
    np.testing.assert_array_equal(found.boxes_xyxy, [[140, 40, 160, 60]])


def test_equal_scores_keep_the_order_of_the_rows():
    decoded = np.zeros((3, 6), np.float32)
    decoded[:, :4] = [[10, 10, 4, 4], [90, 10, 4, 4], [10, 10.1, 4, 4]]
    decoded[:, 4:] = 0.5
    found = non_max_suppression(decoded, SuppressionSettings(0.1, 0.5))
    np.testing.assert_array_equal(found.boxes_xyxy[:, 0], [8, 88])
    np.testing.assert_array_equal(found.boxes_xyxy[:, 1], [8, 8])


def test_overlap_equal_to_the_threshold_is_kept_and_above_it_goes():
    decoded = np.array([[10, 5, 20, 10, 1, 1], [5, 5, 10, 10, 1, 0.9]], np.float32)  # IoU 1/2
    assert len(non_max_suppression(decoded, SuppressionSettings(0.1, 0.5)).scores) == 2
    assert len(non_max_suppression(decoded, SuppressionSettings(0.1, 0.499)).scores) == 1


def test_classes_meet_only_when_nms_is_class_agnostic():
    decoded = np.array([[10, 10, 8, 8, 1, 0.9, 0], [10, 10, 8, 8, 1, 0, 0.8]], np.float32)
    apart = non_max_suppression(decoded, SuppressionSettings(0.1, 0.5))
    together = non_max_suppression(decoded, SuppressionSettings(0.1, 0.5, class_agnostic=True))
    np.testing.assert_array_equal(apart.class_index, [0, 1])
    np.testing.assert_array_equal(together.class_index, [0])


def test_only_the_best_candidates_take_part():
    decoded = predictions(500, 3, seed=5)
    settings = SuppressionSettings(0.0, 1.0, max_detections=500)
    found = non_max_suppression(decoded, settings, max_candidates=50)
    scores = np.sort((decoded[:, 5:] * decoded[:, 4:5]).ravel())[::-1]
    np.testing.assert_array_equal(found.scores, scores[:50])


def test_boxes_without_area_are_neither_lost_nor_an_error():
    decoded = np.array(
        [[10, 10, 0, 8, 1, 0.9], [10, 10, 8, 0, 1, 0.8], [10, 10, 0, 8, 1, 0.7]], np.float32
    )
    assert len(non_max_suppression(decoded, SuppressionSettings(0.1, 0.5)).scores) == 3


def test_box_that_is_no_finite_rectangle_is_kept_and_removes_nothing():
    decoded = np.tile(np.array([[10, 10, 8, 8, 1, 0.9]], np.float32), (50, 1))
    decoded[1:, 5] = 0.8
    for box in ([np.nan] * 4, [10, 10, np.inf, 8], [-np.inf, -np.inf, 8, 8], [10, 10, -50, -50]):
        decoded[7, :4] = box
        found, row = best_rows(decoded, SuppressionSettings(0.1, 0.5))
        assert row.tolist() == [0, 7] and len(found.scores) == 2


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize(
    "decoded",
    [
        np.zeros((0, 8), np.float32),
        np.zeros((20, 8), np.float32),
        np.full((20, 8), np.nan, np.float32),
    ],
)
def test_nothing_above_the_threshold_gives_empty_detections(decoded, multi_label):
    found = non_max_suppression(decoded, SuppressionSettings(multi_label=multi_label))
    assert found.boxes_xyxy.shape == (0, 4) and found.boxes_xyxy.dtype == np.float32
    assert found.scores.shape == (0,) and found.scores.dtype == np.float32
    assert found.class_index.shape == (0,) and found.class_index.dtype == np.int64


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_decoded_predictions_are_float32_or_refused(dtype):
    with pytest.raises(AssertionError, match=f"decoded is {np.dtype(dtype)}: cast the raw maps"):
        non_max_suppression(np.zeros((5, 6), dtype), SuppressionSettings())


def test_only_the_chosen_classes_are_detected():
    decoded = predictions(200, 4, seed=9)
    every = non_max_suppression(decoded, SuppressionSettings(0.2, 0.5, max_detections=1000))
    some = SuppressionSettings(0.2, 0.5, classes=(0, 3), max_detections=1000)
    chosen = non_max_suppression(decoded, some)
    expected = every.take(np.flatnonzero(np.isin(every.class_index, (0, 3))))
    assert 0 < len(expected.scores) < len(every.scores)
    np.testing.assert_array_equal(as_rows(chosen), as_rows(expected))


def sample(class_index):
    boxes = np.full((len(class_index), 4), 0.5, np.float32)
    boxes[:, 0] = np.arange(len(class_index)) / 10
    return Sample(Path("a.jpg"), 10, 10, np.array(class_index, np.int64), boxes)


def test_only_the_chosen_classes_are_compared_with():
    samples = table_of([sample([2, 0, 1, 2]), sample([1])])
    assert only_classes(samples, None, 3) is samples
    first, second = only_classes(samples, (2, 0), 3)
    np.testing.assert_array_equal(first.class_index, [2, 0, 2])
    np.testing.assert_array_equal(first.boxes_cxcywh_norm[:, 0], np.float32([0.0, 0.1, 0.3]))
    assert second.boxes_cxcywh_norm.shape == (0, 4)
    with pytest.raises(UserError, match="--classes 3: the dataset's classes are 0 to 2"):
        only_classes(samples, (0, 3), 3)
