"""Metrics by box and by mask against pycocotools, YOLOv5's stored figures and arithmetic."""

import cv2
import numpy as np
import pytest

from duet.utils.evaluation.coco.matching import BOXES, MASKS
from duet.utils.evaluation.legacy import find_objects, legacy_masks
from tests.coco_reference import (
    assert_masks_equal_pycocotools,
    boxes_around,
    masked_truth,
    segmentations,
)
from tests.environments import shared_path

EXACT = {"rtol": 0, "atol": 1e-9}  # the same float64 numbers, summed in another order
SIZE = 150, 200


def generator(seed):
    return np.random.Generator(np.random.Philox(seed))


def blob(random, size, scale):
    """An ellipse anywhere, turned, of up to `scale` pixels; often over the border."""
    centre = random.uniform(0, 1, 2) * size[::-1]
    axes = np.maximum(random.uniform(0.1, 0.6, 2) * scale, 1).astype(int)
    mask = np.zeros(size, np.uint8)
    angle = random.uniform(0, 180)
    cv2.ellipse(mask, centre.astype(int).tolist(), axes.tolist(), angle, 0, 360, 1, -1)
    return mask.astype(bool)


def disturbed(random, mask):
    """The mask moved, grown or shrunk, and with a bite taken out."""
    shifted = np.roll(mask, random.integers(-4, 5, 2), (0, 1)).astype(np.uint8)
    kernel = np.ones((int(random.integers(1, 6)),) * 2, np.uint8)
    change = cv2.erode if random.uniform() < 0.5 else cv2.dilate
    return change(shifted, kernel).astype(bool) & ~blob(random, mask.shape, 20)


def random_image(random, size, num_classes, num_objects, num_found, score_levels, crowds):
    masks = [blob(random, size, random.choice([12, 50, 160])) for _ in range(num_objects)]
    labels = random.integers(0, num_classes, num_objects)
    found, classes = [], random.integers(0, num_classes, num_found)
    for place in range(num_found):
        if num_objects and random.uniform() < 0.7:
            near = int(random.integers(0, num_objects))
            found.append(disturbed(random, masks[near]))
            classes[place] = labels[near] if random.uniform() < 0.85 else classes[place]
        else:
            found.append(blob(random, size, 60))
    scores = random.uniform(0.001, 1, num_found)
    if score_levels:
        scores = np.ceil(scores * score_levels) / score_levels
    is_crowd = random.uniform(size=num_objects) < 0.25 if crowds else None
    area = [np.count_nonzero(mask) * random.uniform(0.9, 1.1) for mask in masks]
    moved = boxes_around(found) + random.normal(0, 2, (num_found, 4))
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2])
    truth = masked_truth(masks, labels, is_crowd, area)
    return segmentations(found, scores, classes, moved), truth


@pytest.mark.parametrize("crowds", [False, True], ids=["objects", "crowds"])
@pytest.mark.parametrize(("num_classes", "max_objects", "max_found", "levels"), [
    (1, 6, 12, 0), (4, 10, 40, 3), (2, 5, 230, 0),
])  # fmt: skip
def test_random_masks_match_pycocotools(num_classes, max_objects, max_found, levels, crowds):
    random = generator(num_classes)
    images, sizes = {}, {}
    for image_id in random.permutation(100)[:6].tolist():
        sizes[image_id] = SIZE if image_id % 2 else SIZE[::-1]
        counts = (int(random.integers(0, most + 1)) for most in (max_objects, max_found))
        images[image_id] = random_image(
            random, sizes[image_id], num_classes, *counts, levels, crowds
        )
    result = assert_masks_equal_pycocotools(images, sizes, num_classes)
    assert 0.01 < result.masks.map < result.masks.means[2] < 1
    assert result.masks.map != result.boxes.map


SQUARE, EMPTY = np.zeros((2, 20, 30), bool)
SQUARE[2:12, 2:12] = True
HALF = SQUARE & (np.arange(30) < 7)
NOTHING = np.zeros((0, 20, 30), bool)


@pytest.mark.parametrize("image", [
    (segmentations(NOTHING, [], []), masked_truth([SQUARE], [1])),
    (segmentations([SQUARE], [0.9], [1]), masked_truth(NOTHING, [])),
    (segmentations([EMPTY, SQUARE], [0.9, 0.8], [0, 0]), masked_truth([EMPTY, SQUARE], [0, 0])),
    (segmentations([HALF, SQUARE], [0.9, 0.8], [0, 0]), masked_truth([SQUARE], [0], [True])),
    (segmentations([HALF, HALF, SQUARE], [0.9] * 3, [0] * 3),
     masked_truth([SQUARE, SQUARE], [0, 0], [True, False])),
    (segmentations([SQUARE] * 3, [0.9, 0.8, 0.7], [0] * 3),
     masked_truth([SQUARE, HALF], [0, 0], area=[1024, 1025])),
    (segmentations([SQUARE] * 120, [0.5] * 120, [0] * 120), masked_truth([SQUARE], [0])),
], ids=["nothing found", "nothing labelled", "empty masks",
        "only a crowd", "crowd over an object", "area at a limit",
        "beyond rank 100"])  # fmt: skip
def test_edge_case_matches_pycocotools(image):
    assert_masks_equal_pycocotools({7: image}, {7: (20, 30)}, 3)


@pytest.fixture(scope="module")
def stored():
    with np.load(shared_path("golden/segment/mask_metric.npz")) as file:
        return dict(file)


def truth_of(stored, case, kind):
    """The labelled masks of a case as the three forms have them, (M, H, W) bool."""
    if kind == "overlap":
        numbers = 1 + np.arange(len(stored[f"{case}_labels"]))
        return stored[f"{case}_gt_overlap"] == numbers[:, None, None]
    masks = stored[f"{case}_gt_masks" if kind == "masks" else f"{case}_gt_half"]
    height, width = stored[f"{case}_pred_masks"].shape[1:]
    size = width, height
    enlarged = [cv2.resize(mask.astype(np.float32), size) for mask in masks]
    return np.array(enlarged).reshape(-1, height, width) > 0.5


def found_of(stored, case):
    found = stored[f"{case}_detections"]
    masks = stored[f"{case}_pred_masks"] > 0
    return segmentations(masks, found[:, 4], found[:, 5], found[:, :4])


def labels_of(stored, case, kind="masks"):
    labels, masks = stored[f"{case}_labels"], truth_of(stored, case, kind)
    return masked_truth(masks, labels[:, 0])._replace(boxes_xyxy=labels[:, 1:])


@pytest.mark.parametrize(("kind", "name"), [
    ("masks", "correct_masks"), ("overlap", "correct_masks_overlap"),
    ("half", "correct_masks_gt_half"), ("boxes", "correct_boxes"),
])  # fmt: skip
def test_stored_masks_find_the_same_objects(stored, kind, name):
    for number in range(8):
        case = f"c{number}"
        overlap = BOXES if kind == "boxes" else MASKS
        truth = labels_of(stored, case, "masks" if kind == "boxes" else kind)
        correct = find_objects(found_of(stored, case), truth, overlap)
        np.testing.assert_array_equal(correct, stored[f"{case}_{name}"])


def test_mask_overlaps_match_stored_values(stored):
    for number in range(8):
        case = f"c{number}"
        found, truth = found_of(stored, case), labels_of(stored, case)
        one_class = [x._replace(class_index=0 * x.class_index) for x in (found, truth)]
        iou = MASKS.iou(*one_class, np.zeros(len(truth.class_index), bool))
        # Theirs is a float32 quotient of whole numbers, with 1e-7 added to the denominator.
        np.testing.assert_allclose(iou.T, stored[f"{case}_iou"], rtol=0, atol=2e-7)


def test_mask_metrics_match_stored_yolov5_values(stored):
    evaluator = legacy_masks([f"class {index}" for index in range(5)])
    for number in range(8):
        case = f"c{number}"
        evaluator.add(number, found_of(stored, case), labels_of(stored, case))
    result = evaluator.result()
    means = []
    for name, of in (("boxes", result.boxes), ("masks", result.masks)):
        classes = stored[f"ap_{name}_ap_class"]
        np.testing.assert_array_equal(np.flatnonzero(of.num_ground_truth), classes)
        for figure, values in (
            ("p", of.precision), ("r", of.recall), ("ap", of.average_precision),
        ):  # fmt: skip
            np.testing.assert_allclose(values[classes], stored[f"ap_{name}_{figure}"], **EXACT)
        means += of.means
    np.testing.assert_allclose(means, stored["mean_results"], **EXACT)
    maps = sum(np.where(np.isnan(of.ap), of.map, of.ap) for of in (result.boxes, result.masks))
    np.testing.assert_allclose(maps, stored["maps_nc5"], **EXACT)
