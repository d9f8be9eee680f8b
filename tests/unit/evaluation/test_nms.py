"""utils/evaluation/nms.py against stored cases and a direct, slow form of the greedy rule."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from duet.utils.cli.val_config import parse_val_flags
from duet.utils.data.sources.samples import Sample, table_of
from duet.utils.data.sources.splits import only_classes
from duet.utils.evaluation.nms import (
    MAX_CANDIDATES,
    STAGE,
    best_rows_of_images,
    non_max_suppression,
    suppress_greedily,
)
from duet.utils.geometry.boxes import cxcywh_to_xyxy, pairwise_iou
from duet.utils.geometry.detections import SuppressionSettings
from tests.environments import shared_path
from tests.golden_models import info, stored
from tests.unit.evaluation.coco.test_metric import generator


def as_rows(detections) -> np.ndarray:
    """Return (K, 6): x1, y1, x2, y2, score, class, as in the stored outputs."""
    boxes_xyxy, scores, class_index = detections
    return np.concatenate((boxes_xyxy, scores[:, None], class_index[:, None]), axis=1)


def predictions(num_rows: int, num_classes: int, seed: int, levels: int = 0) -> np.ndarray:
    """Draw decoded predictions; with levels, class scores take only that many values."""
    random = generator(seed)
    centre, size = random.uniform(0, 200, (num_rows, 2)), random.uniform(5, 80, (num_rows, 2))
    scores = random.uniform(0, 1, (num_rows, 1 + num_classes))
    if levels:
        scores = np.ceil(scores * levels) / levels
    return np.concatenate((centre, size, scores), axis=1).astype(np.float32)


def test_nms_matches_stored_cases():
    images = dict(np.load(shared_path("golden/nms/predictions.npz")))
    outputs = dict(np.load(shared_path("golden/nms/outputs.npz")))
    num_exact = []
    for case in json.loads(shared_path("golden/nms/cases.json").read_text()):
        settings = SuppressionSettings(
            case["conf"], case["iou"], case["agnostic"], case["classes"], case["max_det"],
            case["multi_label"],
        )  # fmt: skip
        for number, decoded in enumerate(images[case["pred"]]):
            found = as_rows(non_max_suppression(decoded, settings))
            expected = outputs[f"c{case['id']}_i{number}"]
            np.testing.assert_array_equal(found[:, 4], expected[:, 4])
            # Rows may differ at equal scores: the stored sort is not stable.
            scores = decoded[:, 5:] * decoded[:, 4:5]
            values, counts = np.unique(scores[scores > case["conf"]], return_counts=True)
            different = (found != expected).any(axis=1)
            assert np.isin(found[different, 4], values[counts > 1]).all()
            num_exact.append(not different.any())
    # Eight outputs, all of one image with many saturated, equal scores, have ties in another order.
    assert (len(num_exact), sum(num_exact)) == (408, 400)


def greedy_nms(boxes_xyxy, group, iou_threshold, max_kept):
    """Apply the greedy rule, a box at a time."""
    overlaps = pairwise_iou(boxes_xyxy, boxes_xyxy) > iou_threshold
    overlaps &= group[:, None] == group
    kept = []
    for row in range(len(boxes_xyxy)):
        if len(kept) < max_kept and not overlaps[row, kept].any():
            kept.append(row)
    return np.array(kept, np.int64)


@pytest.mark.parametrize(("num_classes", "levels"), [(1, 0), (4, 0), (4, 3), (1, 1)])
@pytest.mark.parametrize("max_detections", [5, 1000])
def test_nms_follows_the_greedy_rule(num_classes, levels, max_detections):
    decoded = predictions(400, num_classes, seed=num_classes + 10 * levels, levels=levels)
    found = non_max_suppression(
        decoded, SuppressionSettings(0.1, 0.5, max_detections=max_detections)
    )
    scores = decoded[:, 5:] * decoded[:, 4:5]
    row, label = np.nonzero(scores > 0.1)
    order = np.lexsort((label, row, -scores[row, label]))
    row, label = row[order], label[order]
    boxes = cxcywh_to_xyxy(decoded[:, :4])[row]
    kept = greedy_nms(boxes, label, 0.5, max_detections)
    assert 0 < len(kept) <= max_detections
    np.testing.assert_array_equal(found.boxes_xyxy, boxes[kept])
    np.testing.assert_array_equal(found.scores, scores[row, label][kept])
    np.testing.assert_array_equal(found.class_index, label[kept])


NO_AREA = np.float32([
    [np.nan, 0, 20, np.nan], [-np.inf, 0, np.inf, 20], [-np.inf] * 4, [0, 0, np.inf, 20],
    [20, 20, 0, 0], [20, 0, 0, 20], [0, 20, 20, 0], [0, 5, 20, 5],
])  # fmt: skip


def drawn_boxes(kind: str, count: int) -> np.ndarray:
    random = generator(count)
    if kind == "on a grid":  # boxes coincide, touch, lack area and meet thresholds exactly
        corner, size = random.integers(-6, 6, (count, 2)), random.integers(0, 7, (count, 2))
        return np.concatenate((corner, corner + size), axis=1).astype(np.float32)
    spread = 9 if kind == "crowded" else 60
    centre, size = random.uniform(0, spread, (count, 2)), random.uniform(1, 12, (count, 2))
    boxes_xyxy = np.concatenate((centre - size, centre + size), axis=1).astype(np.float32)
    if kind == "with boxes that are no finite rectangle":
        boxes_xyxy[:: count // 8] = np.resize(NO_AREA, boxes_xyxy[:: count // 8].shape)
    return boxes_xyxy


@pytest.mark.parametrize("lengths", [[0], [700], [40, 0, 350, 1, 90]], ids=str)
@pytest.mark.parametrize(
    "kind", ["on a grid", "crowded", "apart", "with boxes that are no finite rectangle"]
)
def test_batched_nms_equals_single_image_nms(kind, lengths):
    boxes_xyxy = drawn_boxes(kind, sum(lengths) or 8)[: sum(lengths)]
    group = generator(1).integers(0, 2, len(boxes_xyxy)) * 1000 - 1
    finite = np.where(np.isfinite(boxes_xyxy).all(axis=1, keepdims=True), boxes_xyxy, 0)
    flat = (finite[:, 2:] <= finite[:, :2]).any(axis=1)
    finite[flat] = 0  # these overlap nothing either
    images = np.split(np.arange(len(boxes_xyxy)), np.cumsum(lengths)[:-1])
    for threshold in (0.0, 0.25, 0.5, 0.95, 1.0):
        for max_kept in (1, 30, 1000):
            expected = [
                index[greedy_nms(finite[index], group[index], threshold, max_kept)]
                for index in images
            ]
            found = suppress_greedily(boxes_xyxy, group, threshold, max_kept, lengths)
            np.testing.assert_array_equal(found, np.concatenate(expected))


def test_crowded_nms_completes_in_bounded_memory():
    # Boxes that coincide but for a pixel's part, in 8 heaps of 2,000: 8 million pairs an image, 1
    # GB if listed at once. The last of an image lies elsewhere.
    random = generator(6)
    left = 30.0 * (np.arange(16000) // 2000)
    corner = np.stack((left, np.zeros(16000)), axis=1) + random.normal(0, 0.3, (16000, 2))
    boxes_xyxy = np.concatenate((corner, corner + 25), axis=1).astype(np.float32)
    boxes_xyxy[-1] += 900
    boxes_xyxy = np.tile(boxes_xyxy, (4, 1))
    tracemalloc.start()
    try:
        row = suppress_greedily(boxes_xyxy, np.zeros(64000, np.int64), 0.5, 300, [16000] * 4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(row) == 4 * 9 and row[8::9].tolist() == [15999, 31999, 47999, 63999]
    # About 200 bytes for each box, 150 for each pair of a stage's boxes in an image.
    assert peak < 64000 * 250 + 4 * STAGE * STAGE / 2 * 150


@pytest.mark.parametrize("threshold", [0.01, 0.2, 0.5, 0.6, 0.95])
def test_overlaps_near_the_threshold_are_all_found(threshold):
    # Pairs whose IoU is the threshold but for rounding: shifted along x, along y and along both, or
    # one inside the other at a side. The search beside a box must leave none of them out.
    random = generator(3)
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
    expected = greedy_nms(boxes_xyxy, group, threshold, 1000)
    assert 410 < len(expected) < 790
    found = suppress_greedily(boxes_xyxy, group, threshold, 1000, [800])
    np.testing.assert_array_equal(found, expected)


CHAIN = [[0, 0, 10, 1], [4, 0, 14, 1], [8, 0, 18, 1]]  # IoU 3/7 between neighbours
SIZES = [[0, 0, 1e-30, 1], [0, 0, 1e-30, 1], [1e30, 0, 2e30, 1], [1e30, 0, 2e30, 1]]


@pytest.mark.parametrize(("boxes", "group", "threshold", "kept"), [
    ([[0, 0, 4, 2], [2, 0, 4, 2]], [0, 0], 0.5, [0, 1]),  # exactly at the threshold
    ([[0, 0, 4, 2], [2, 0, 4, 2]], [0, 0], 0.499, [0]),
    # 4800002 / 8000003 is 1e-9 above the float32 nearest to 0.6, and rounds to it in float32.
    ([[0, 0, 1, 8000003], [0, 0, 1, 4800002]], [0, 0], 0.6, [0]),
    (CHAIN, [5, 5, 5], 0.4, [0, 2]),  # a removed box removes nothing
    (CHAIN, [5, 7, 5], 0.4, [0, 1, 2]),
    (SIZES, [0, 0, 0, -1], 0.5, [0, 2, 3]),
])  # fmt: skip
def test_nms_keeps_the_hand_computed_boxes(boxes, group, threshold, kept):
    threshold = float(np.float32(threshold))
    found = suppress_greedily(np.float32(boxes), np.array(group), threshold, 100, [len(boxes)])
    assert found.tolist() == kept


BEST = [[50, 50, 20, 20, 0.5, 0.4, 0.8, 0.6]]
SAME_PLACE = [[10, 10, 8, 8, 1, 0.9, 0], [10, 10, 8, 8, 1, 0, 0.8]]
# Far apart; scores 0.25, just above it, and 0.25 by objectness alone.
ABOVE = float(np.nextafter(np.float32(0.5), np.float32(1)))
AT_LIMIT = [[50, 50, 20, 20, 0.5, 0.5], [150, 50, 20, 20, 0.5, ABOVE], [250, 50, 20, 20, 0.25, 1]]
TIES = [[10, 10, 4, 4, 0.5, 0.5], [90, 10, 4, 4, 0.5, 0.5], [10, 10.1, 4, 4, 0.5, 0.5]]
FLAT = [[10, 10, 0, 8, 1, 0.9], [10, 10, 8, 0, 1, 0.8], [10, 10, 0, 8, 1, 0.7]]


@pytest.mark.parametrize(("decoded", "settings", "rows", "classes"), [
    (BEST, {"multi_label": False}, [0], [1]),
    (BEST, {}, [0, 0, 0], [1, 2, 0]),
    (SAME_PLACE, {}, [0, 1], [0, 1]),
    (SAME_PLACE, {"class_agnostic": True}, [0], [0]),
    (AT_LIMIT, {"confidence_threshold": 0.25}, [1], [0]),
    (AT_LIMIT, {"confidence_threshold": 0.25, "multi_label": False}, [1], [0]),
    (TIES, {}, [0, 1], [0, 0]),
    (FLAT, {}, [0, 1, 2], [0, 0, 0]),
    (np.zeros((20, 8)), {}, [], []),
    (np.full((20, 8), np.nan), {"multi_label": False}, [], []),
    (np.zeros((0, 8)), {}, [], []),
], ids=["best class", "every class", "classes apart", "agnostic", "at the confidence",
        "at the confidence, best class", "equal scores", "no area", "zeros", "NaN",
        "no rows"])  # fmt: skip
def test_best_rows_match_hand_computed_predictions(decoded, settings, rows, classes):
    settings = SuppressionSettings(
        **{"confidence_threshold": 0.1, "iou_threshold": 0.5, **settings}
    )
    ((found, row),) = best_rows_of_images([np.float32(decoded)], settings)
    assert (row.tolist(), found.class_index.tolist()) == (rows, classes)
    assert found.boxes_xyxy.shape == (len(rows), 4)
    assert [field.dtype for field in found] == [np.float32, np.float32, np.int64]


def test_only_the_top_candidates_enter_nms():
    decoded = predictions(10_001, 3, seed=5)
    decoded[:, 2:4] = 0  # boxes without area overlap nothing
    settings = SuppressionSettings(0.0, 1.0, max_detections=40_000)
    found = non_max_suppression(decoded, settings)
    scores = np.sort((decoded[:, 5:] * decoded[:, 4:5]).ravel())[::-1]
    np.testing.assert_array_equal(found.scores, scores[:MAX_CANDIDATES])


def test_nms_is_independent_of_the_class_number():
    """A shift per class in float32, as in the public YOLOv5, would round boxes of high numbers."""
    decoded = predictions(3000, 1, seed=3)
    of_class_79 = np.insert(decoded, [5] * 79, 0, axis=1)
    settings = SuppressionSettings(max_detections=3000)
    one, other = (non_max_suppression(x, settings) for x in (decoded, of_class_79))
    assert len(one.scores) > 300 and set(other.class_index) == {79}
    np.testing.assert_array_equal(other.boxes_xyxy, one.boxes_xyxy)


def test_training_validation_uses_default_nms_of_val():
    flags = parse_val_flags(["--weights", "F"])
    assert flags.suppression(multi_label=True) == SuppressionSettings()


def sample(class_index):
    boxes = np.full((len(class_index), 4), 0.5, np.float32)
    boxes[:, 0] = np.arange(len(class_index)) / 10
    return Sample(Path("a.jpg"), 10, 10, np.array(class_index, np.int64), boxes)


def test_only_chosen_classes_are_compared():
    samples = table_of([sample([2, 0, 1, 2]), sample([1])])
    assert only_classes(samples, None) is samples
    first, second = only_classes(samples, (2, 0))
    np.testing.assert_array_equal(first.class_index, [2, 0, 2])
    np.testing.assert_array_equal(first.boxes_cxcywh_norm[:, 0], np.float32([0.0, 0.1, 0.3]))
    assert second.boxes_cxcywh_norm.shape == (0, 4)


SETS = ("nc80", "nc3", "nc1", "nc3_one_empty")
# max_nms_40 has another limit on candidates; iou_1 keeps boxes of rounding alone.
LEFT_OUT = {"max_nms_40", "iou_1"}
NAMES = {"conf_thres": "confidence_threshold", "iou_thres": "iou_threshold",
         "agnostic": "class_agnostic", "max_det": "max_detections",
         "multi_label": "multi_label"}  # fmt: skip
DEFAULTS = {"confidence_threshold": 0.25, "iou_threshold": 0.45, "multi_label": False}


def settings_of(options):
    found = {NAMES[name]: value for name, value in options.items() if name in NAMES}
    if "classes" in options:
        found["classes"] = tuple(options["classes"])
    return SuppressionSettings(**{**DEFAULTS, **found})


@pytest.mark.parametrize("name", SETS)
def test_anchor_free_nms_rows_match_stored_values(name):
    details, wanted = info("anchor_free/inference"), stored("anchor_free/inference/nms_outputs")
    images = stored("anchor_free/inference/nms_inputs")[name]
    compared = 0
    for case in sorted(details["rows"][name].keys() - LEFT_OUT):
        settings = settings_of(details["cases"][case])
        for index, decoded in enumerate(images):
            rows = np.insert(decoded.T, 4, np.float32(1), axis=1)
            found = non_max_suppression(np.ascontiguousarray(rows, np.float32), settings)
            expected = wanted[f"{name}_{case}_i{index}"]
            assert len(found.scores) == len(expected), case
            np.testing.assert_array_equal(found.scores, expected[:, 4])
            np.testing.assert_array_equal(found.class_index, expected[:, 5])
            np.testing.assert_allclose(found.boxes_xyxy, expected[:, :4], rtol=0, atol=1e-4)
            compared += len(expected)
    assert compared > 100
