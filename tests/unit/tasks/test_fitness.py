"""What a task weighs its figures by is what its head calls fitness."""

import numpy as np
import pytest

import duet.models.graph  # noqa: F401  registers all heads
from duet.models.blocks.registry import find_block
from duet.models.export.exported import FORMS
from duet.utils.data.masks.runs import runs_of_mask
from duet.utils.detections import Classification, Detections, GroundTruth, Segmentations
from duet.utils.ragged import Ragged
from duet.utils.tasks.table import TASKS

SQUARE = np.zeros((20, 20), bool)
SQUARE[2:12, 2:12] = True
BOX = np.float32([[2, 2, 12, 12]])
SHIFTED = Ragged.of([runs_of_mask(np.roll(SQUARE, 2, axis=1))], np.uint32)  # IoU 2/3
RUNS = Ragged.of([runs_of_mask(SQUARE)], np.uint32)
ONE, ZERO = np.ones(1, np.float32), np.zeros(1, np.int64)
FOUND = {
    "detect": Detections(BOX + np.float32(1), ONE, ZERO),  # IoU 81/119
    "detect-anchor-free": Detections(BOX + np.float32(1), ONE, ZERO),
    "segment": Segmentations(BOX, ONE, ZERO, SHIFTED),
    "classify": Classification(np.float32([[0.7, 0.3]])),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_fitness_is_made_of_the_figures_of_the_head(task):
    head = find_block(task.head).kind
    evaluator = FORMS[task.name].head(head, 2).make_evaluator(("a", "b"))
    evaluator.add(0, FOUND[task.name], GroundTruth(ZERO, BOX, masks=RUNS))
    result = evaluator.result()
    figures = head.metrics(result)
    assert figures.keys() == head.metric_names.keys()
    weighed = sum(weight * figures[name] for name, weight in task.fitness.items())
    assert head.fitness(result) == pytest.approx(weighed) and weighed > 0
