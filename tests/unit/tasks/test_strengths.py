"""Every strength of the augmentation with every task: it changes training images, or is named."""

import dataclasses

import numpy as np
import pytest

from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.data.image.decoding import SourceImage
from duet.utils.data.loading.items import items_of
from duet.utils.data.randomness import sample_generator
from duet.utils.polygons import Polygons, starts_of
from duet.utils.strengths import STRENGTHS, AugmentConfig
from duet.utils.tasks.find import without_effect
from duet.utils.tasks.table import TASKS
from tests.tiny_weights import noise

SIZE, SAMPLES = 64, 6
BOX = np.array([[4.0, 8.0, 20.0, 30.0]])
OUTLINE = Polygons(BOX[0, [0, 1, 2, 1, 2, 3]].reshape(-1, 2), starts_of(np.array([3])))
PIXELS = noise(SIZE, SIZE)
SOURCE = SourceImage((SIZE, SIZE), np.zeros(1, np.int64), BOX, OUTLINE, 1, lambda: PIXELS)
PLAIN = AugmentConfig(mosaic=1)  # copies and mixtures are of mosaics


def changed(strength):
    """PLAIN with another value of a strength."""
    value = {"mosaic": 0.0, "perspective": 0.001}.get(strength, 1.0)
    return dataclasses.replace(PLAIN, **{strength: value})


def images(task, config):
    """The first training images of a task, as bytes, and their boxes."""
    items, made = items_of(task), []
    for index in range(SAMPLES):
        drawn = items.draw(config, sample_generator(0, 0, index), index, 100)
        item = items.make(drawn, [SOURCE] * len(drawn.samples), SIZE, (SIZE, SIZE))
        made.append((item.image.tobytes(), item.boxes_xyxy.tolist()))
    return made


@pytest.mark.parametrize("task", TASKS)
def test_a_strength_that_changes_no_image_of_a_task_is_named_and_no_other(task):
    plain = images(task, PLAIN)
    idle = {name for name in STRENGTHS if images(task, changed(name)) == plain}
    assert idle == set(STRENGTHS) & set(TASKS[task].unused)


@pytest.mark.parametrize("task", TASKS)
def test_each_idle_strength_that_somebody_sets_is_named(task):
    usual = read_hyperparameters(TASKS[task].defaults.get("hyp", DEFAULT_HYPERPARAMETERS))
    for name in STRENGTHS:
        value = 0.0005 if name == "perspective" else 0.123
        named = without_effect(TASKS[task], dataclasses.replace(usual, **{name: value}))
        assert named == [name] * (name in TASKS[task].unused)
