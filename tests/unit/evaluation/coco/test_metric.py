"""`coco/metric.py` and `coco/matching.py` against pycocotools, on random images and edge cases."""

import numpy as np
import pytest

from tests.coco_reference import (
    Image,
    assert_equal_to_pycocotools,
    detections,
    evaluate,
    ground_truth,
)


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def random_boxes(random: np.random.Generator, num_boxes: int, whole_pixels: bool) -> np.ndarray:
    """Draw boxes of up to 40, 120 or 400 px a side; whole_pixels puts them on multiples of 4."""
    corner = random.uniform(0, 60, (num_boxes, 2))
    size = random.uniform(0, 1, (num_boxes, 2)) * random.choice([40, 120, 400], (num_boxes, 1))
    boxes_xyxy = np.concatenate((corner, corner + size), axis=1).astype(np.float32)
    return np.round(boxes_xyxy / 4) * 4 if whole_pixels else boxes_xyxy


def random_image(
    random, num_classes, num_objects, num_detections, score_levels, coarse, outlined=False
) -> Image:
    """Draw objects and detections; half of these lie near an object, mostly with its class.

    With outlined as in COCO's annotations: areas below the boxes', and one object in four a crowd.
    """
    objects = random_boxes(random, num_objects, coarse)
    labels = random.integers(0, num_classes, num_objects)
    boxes_xyxy = random_boxes(random, num_detections, coarse)
    class_index = random.integers(0, num_classes, num_detections)
    if num_objects:
        near = random.integers(0, num_objects, num_detections // 2)
        shape = len(near), 4
        noise = 4 * random.integers(-1, 2, shape) if coarse else random.normal(0, 2, shape)
        boxes_xyxy[: len(near)] = objects[near] + noise
        boxes_xyxy[:, 2:] = np.maximum(boxes_xyxy[:, 2:], boxes_xyxy[:, :2])
        relabelled = random.uniform(size=len(near)) < 0.2
        class_index[: len(near)] = np.where(relabelled, class_index[: len(near)], labels[near])
    scores = random.uniform(0.001, 1, num_detections)
    if score_levels:
        scores = np.ceil(scores * score_levels) / score_levels
    is_crowd = area = None
    if outlined:
        is_crowd = random.uniform(size=num_objects) < 0.25
        area = random.uniform(0.2, 1, num_objects) * np.prod(objects[:, 2:] - objects[:, :2], 1)
        # On the bounds of the size ranges, which belong to both.
        area = np.where(random.uniform(size=num_objects) < 0.2, random.choice([1024, 9216]), area)
    truth = ground_truth(labels, objects, is_crowd, area)
    return detections(boxes_xyxy, scores, class_index), truth


@pytest.mark.parametrize("outlined", [False, True], ids=["boxes", "areas and crowds"])
@pytest.mark.parametrize("coarse", [False, True], ids=["fine boxes", "equal and empty boxes"])
@pytest.mark.parametrize("score_levels", [0, 3], ids=["free scores", "tied scores"])
@pytest.mark.parametrize(("num_classes", "max_objects", "max_detections"), [
    (1, 6, 12), (5, 12, 40), (3, 20, 450),
])  # fmt: skip
def test_random_images_match_pycocotools(
    num_classes, max_objects, max_detections, score_levels, coarse, outlined
):
    random = generator(num_classes)
    images = {
        int(image_id): random_image(
            random,
            num_classes,
            int(random.integers(0, max_objects + 1)),
            int(random.integers(0, max_detections + 1)),
            score_levels,
            coarse,
            outlined,
        )
        for image_id in random.permutation(1000)[:25]  # added in another order than the ids'
    }
    result = assert_equal_to_pycocotools(images, num_classes)
    assert 0.01 < result.map < result.means[2] < 1
    assert not np.isnan(list(result.summary().values())).any()


BOX, OTHER = [10, 10, 30, 30], [50, 50, 70, 80]
# Each overlaps its neighbours alone, all equally: intersection 8 x 10, union 12 x 10.
ROW = [[left, 0, left + 10, 10] for left in (0, 2, 4, 6)]
NO_OBJECTS, NO_DETECTIONS = ground_truth([], []), detections([], [], [])


@pytest.mark.parametrize("images", [
    {1: (NO_DETECTIONS, ground_truth([0, 1], [BOX, OTHER]))},
    {1: (detections([BOX], [0.9], [0]), NO_OBJECTS)},
    {1: (NO_DETECTIONS, NO_OBJECTS), 2: (detections([BOX], [0.5], [0]), ground_truth([0], [BOX]))},
    {1: (detections([OTHER] * 100 + [BOX], [0.9] * 100 + [0.8], [0] * 101),
         ground_truth([0], [BOX]))},
    {1: (detections([ROW[1], ROW[3]], [0.9, 0.8], [0, 0]), ground_truth([0, 0], ROW[0:3:2]))},
    {1: (detections([ROW[1], ROW[3]], [0.9, 0.8], [0, 0]), ground_truth([0, 0], ROW[2::-2]))},
    {1: (detections([BOX, BOX, OTHER], [0.9, 0.8, 0.7], [0] * 3), ground_truth([0], [BOX], [1]))},
    {1: (detections([BOX] * 3, [0.9, 0.8, 0.7], [0] * 3),
         ground_truth([0, 0], [BOX, BOX], [True, False]))},
    {1: (detections([BOX] * 3, [0.9, 0.8, 0.7], [0] * 3),
         ground_truth([0, 0], [[10, 10, 30, 25], BOX], area=[200, 1025]))},
    {1: (detections([[0, 0, 32, 32], [0, 0, 96, 96]], [0.9, 0.8], [0, 0]),
         ground_truth([0, 0], [[0, 0, 32, 32], [0, 0, 96, 96]]))},
    {1: (detections([[5, 5, 5, 9], BOX], [0.9, 0.8], [0, 0]),
         ground_truth([0], [[0, 0, 90, 90]], [True]))},
], ids=["no detections", "no objects", "empty image", 
        "object found at rank 101", "equal overlaps",
        "alternating equal overlaps", "only a crowd", "crowd over an object",
        "two sizes at one place", "areas at the limits", "within a crowd"])  # fmt: skip
def test_edge_case_matches_pycocotools(images):
    assert_equal_to_pycocotools(images, num_classes=3)


def test_empty_evaluation_gives_zero_means_and_nan_classes():
    result = evaluate({}, 2)
    assert result.means == (0, 0, 0, 0)
    assert (result.num_images, result.confidence) == (0, 0)
    np.testing.assert_array_equal(result.num_ground_truth, [0, 0])
    for per_class in (result.precision, result.recall, result.ap50, result.ap):
        np.testing.assert_array_equal(per_class, [np.nan, np.nan])


@pytest.mark.parametrize("seed", range(4))
def test_precision_and_recall_are_taken_at_the_best_mean_f1(seed):
    # Far apart: a detection of an object's class is right wherever it lies on its box.
    random = generator(seed)
    num_classes, num_images, objects_each = 3, 8, 6
    images, truth = {}, []
    for image_id in range(num_images):
        corners = np.arange(objects_each)[:, None] * [100, 0]
        boxes_xyxy = np.concatenate((corners, corners + 50), axis=1)
        labels = random.integers(0, num_classes - 1, objects_each)  # the last class has no object
        # Higher scores are right more often: the best confidence is in between.
        scores = np.round(random.uniform(0, 1, objects_each) + 0.1, 1).astype(np.float32)
        wrong = (labels + random.integers(1, num_classes, objects_each)) % num_classes
        found_class = np.where(random.uniform(0, 1, objects_each) < scores, labels, wrong)
        images[image_id] = (
            detections(boxes_xyxy, scores, found_class),
            ground_truth(labels, boxes_xyxy),
        )
        truth += list(zip(scores, found_class, labels, strict=True))
    scores, found_class, labels = (np.array(column) for column in zip(*truth, strict=True))
    best = (-1.0, 0.0, np.zeros(2), np.zeros(2))
    for confidence in np.unique(scores)[::-1]:
        counted, classes = scores >= confidence, np.arange(num_classes - 1)[:, None]
        right = (counted & (found_class == classes) & (labels == classes)).sum(axis=1)
        num_found = (counted & (found_class == classes)).sum(axis=1)
        num_objects = (labels == classes).sum(axis=1)
        mean_f1 = (2 * right / (num_found + num_objects)).mean()
        if mean_f1 > best[0] + 1e-12:  # the running sum of the code under test rounds once a step
            best = mean_f1, confidence, right / np.maximum(num_found, 1), right / num_objects
    result = evaluate(images, num_classes)
    assert result.confidence == pytest.approx(best[1])
    np.testing.assert_allclose(result.precision, [*best[2], np.nan], rtol=1e-12)
    np.testing.assert_allclose(result.recall, [*best[3], np.nan], rtol=1e-12)
    assert result.means[0] == pytest.approx(best[2].mean())
    assert result.means[1] == pytest.approx(best[3].mean())
