"""A model whose classes are not told apart."""

import numpy as np
import pytest

from models.detector import Detector
from models.graph import parse_model
from models.inference.predictors import OneClass
from tests.small import TINY
from utils.data.image.letterbox import fit_letterbox
from utils.evaluation.nms import SuppressionSettings
from utils.files.yaml import parse_yaml

# cx, cy, w, h, objectness, then five classes; the first two overlap.
ROWS = np.array([
    [20, 20, 10, 10, 0.9, 0.1, 0.8, 0.0, 0.0, 0.2],
    [21, 20, 10, 10, 0.9, 0.7, 0.1, 0.0, 0.0, 0.0],
    [50, 50, 10, 10, 0.5, 0.0, 0.0, 0.0, 0.6, 0.9],
], np.float32)  # fmt: skip


class Finds:
    """A predictor that finds the rows in every image."""

    stride = 8
    fixed_size, takes_arrays = None, False

    def __init__(self, head):
        self.head = head

    def __call__(self, images):
        return len(images)

    def decode_above(self, raw, confidence_threshold):
        return [ROWS] * raw


@pytest.fixture(scope="module")
def model():
    return OneClass(Finds(Detector(parse_model(parse_yaml(TINY.encode()), 5)).head))


def test_each_row_keeps_its_best_class_score(model):
    found = model.decode_above(model([0, 0]), 0.1)
    assert len(found) == 2
    best = np.array([0.8, 0.7, 0.9], np.float32)
    np.testing.assert_array_equal(found[0], np.column_stack([ROWS[:, :5], best]))
    assert found[0].dtype == np.float32


def test_boxes_of_different_classes_suppress_each_other(model):
    (rows,) = model.decode_above(1, 0.1)
    place = fit_letterbox((64, 64), (64, 64))
    found = model.head.finish(rows, place, SuppressionSettings(0.1, 0.5))
    assert found.class_index.tolist() == [0, 0]
    np.testing.assert_allclose(found.scores, [0.72, 0.45], rtol=1e-6)  # float32
    apart = model.head.finish(ROWS, place, SuppressionSettings(0.1, 0.5))
    assert len(set(apart.class_index.tolist())) > 1


def test_nothing_found_stays_nothing(model):
    assert model.head.of_best_class(ROWS[:0]).shape == (0, 6)
