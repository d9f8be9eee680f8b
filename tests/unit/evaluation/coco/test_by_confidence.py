"""`coco/precision.py` against counting, and against the figures at the best confidence."""

import numpy as np

from duet.utils.evaluation.coco.metric import NUM_EXAMPLES, DetectionEvaluator
from duet.utils.evaluation.coco.precision import CONFIDENCE_GRID, curves_by_confidence
from duet.utils.geometry.detections import Detections, GroundTruth


def random_detections(random, num_classes, number):
    """Scores of which half lie on the grid."""
    scores = random.uniform(0, 1, number).astype(np.float32)
    scores = np.where(random.uniform(size=number) < 0.5, np.round(scores, 1), scores)
    return scores, random.integers(0, num_classes, number), random.uniform(size=number) < 0.4


def test_at_each_confidence_those_count_that_reach_it():
    random = np.random.Generator(np.random.Philox(5))
    scores, class_index, correct = random_detections(random, 4, 300)
    objects = np.array([200, 0, 50, 100])
    found = curves_by_confidence(scores, class_index, correct, objects)
    for place in (0, 1, 50, 249, 250, 400, 500):
        left = scores >= CONFIDENCE_GRID[place]
        for index in range(4):
            number = (left & (class_index == index)).sum()
            right = (left & correct & (class_index == index)).sum()
            nan = np.nan
            known = objects[index] > 0
            precision = right / number if number and known else nan
            recall = right / objects[index] if known else nan
            f1 = 2 * right / (number + objects[index]) if known else nan
            for curve, expected in zip(found, (precision, recall, f1), strict=True):
                assert curve.shape == (4, 501)
                np.testing.assert_equal(curve[index, place], expected)


def box_at(place):
    return [place, place, place + 10, place + 10]


def evaluator_of(scores_by_image):
    evaluator = DetectionEvaluator(["a"])
    for image_id, scores in scores_by_image.items():
        boxes = np.array([box_at(20 * number) for number in range(len(scores))], np.float32)
        found = Detections(boxes.reshape(-1, 4), np.array(scores, np.float32),
                           np.zeros(len(scores), np.int64))  # fmt: skip
        truth = GroundTruth(np.zeros(1, np.int64), np.array([box_at(0)], np.float64))
        evaluator.add(image_id, found, truth)
    return evaluator.result()


def test_curves_pass_through_the_figures_at_the_best_confidence():
    result = evaluator_of({0: [0.75, 0.5], 1: [0.5, 0.125]})
    assert result.confidence == 0.5
    place = int(np.searchsorted(CONFIDENCE_GRID, 0.5))
    assert CONFIDENCE_GRID[place] == 0.5
    curves = result.by_confidence
    assert curves.precision[0, place] == result.means[0] == 2 / 3
    assert curves.recall[0, place] == result.means[1] == 1


def test_the_first_images_are_kept_with_what_was_found_above_a_quarter():
    result = evaluator_of({50: [0.9], 47: [0.75, 0.25, 0.5], 3: []})
    assert NUM_EXAMPLES == 48 and list(result.examples) == [3, 47]
    assert result.examples[47].found.scores.tolist() == [0.75, 0.5]
    assert result.examples[47].found.boxes_xyxy.tolist() == [box_at(0), box_at(40)]
    assert result.examples[3].truth.boxes_xyxy.tolist() == [box_at(0)]
