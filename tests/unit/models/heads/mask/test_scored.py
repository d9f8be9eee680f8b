"""`heads/mask/head.py`: figures of boxes and masks by name, and the one that decides."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from duet.models.heads.mask.head import MaskHead
from duet.utils.evaluation.coco.metric import MaskResult
from duet.utils.report.results import result_columns
from tests.coco_reference import boxes_around, evaluate_masks, masked_truth, segmentations
from tests.shared_files import shared_path

WHOLE, OTHER = np.zeros((2, 40, 60), bool)
WHOLE[10:30, 10:30] = True
OTHER[5:15, 40:50] = True
HALF = WHOLE & (np.arange(60) < 20)


@pytest.fixture(scope="module")
def result():
    """Class 0: its box is right, its mask half of the object; class 2: nothing is found."""
    found = segmentations([HALF], [0.9], [0], boxes_around([WHOLE]))
    return evaluate_masks({0: (found, masked_truth([WHOLE, OTHER], [0, 2]))}, 3)


def test_the_columns_are_those_of_the_public_results():
    stored = json.loads(shared_path("golden/segment/info.json").read_text())
    columns = result_columns(["box", "seg", "obj", "cls"], MaskHead.metric_names)
    public = stored["results_csv_header"]
    assert columns[: len(public)] == public
    assert [f"best/{name}" for name in MaskHead.metric_names] == stored["best_keys"][1:]


def test_figures_are_those_of_boxes_and_then_of_masks(result):
    figures = MaskHead.metrics(result)
    assert list(figures) == list(MaskHead.metric_names)
    # Of two classes one is found: its box at all ten thresholds, its mask at the first of them.
    assert list(figures.values()) == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.05])


def test_fitness_is_that_of_boxes_and_that_of_masks_together(result):
    assert MaskHead.fitness(result) == pytest.approx(0.5 + 0.1 * 0.5 + 0.9 * 0.05)
    with np.load(shared_path("golden/segment/mask_metric.npz")) as stored:
        for row, fitness in zip(stored["fitness_in"], stored["fitness_out"], strict=True):
            of = [SimpleNamespace(means=tuple(row[at : at + 4])) for at in (0, 4)]
            assert MaskHead.fitness(MaskResult(*of)) == pytest.approx(fitness, abs=1e-9)


def test_the_score_of_a_class_is_the_mean_of_both(result):
    # A class without objects has the mean of the others: 0.5 of boxes, 0.05 of masks.
    assert MaskHead.class_scores(result) == pytest.approx(((1 + 0.1) / 2, 0.55 / 2, 0))
