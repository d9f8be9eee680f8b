"""Classes of a dataset and of weights, matched by name."""

import logging

import numpy as np
import pytest

from utils.data.audit.classes import share_classes
from utils.data.audit.findings import NOTHING
from utils.detections import Detections, GroundTruth
from utils.errors import UserError


def share(class_names, known, num_known=None):
    return share_classes("d.yaml", class_names, "w.pt", known, num_known or len(known))


def test_classes_in_another_order_are_matched_by_name():
    classes = share(("dog", "cat"), ("cat", "bird", "dog"))
    boxes = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = Detections(boxes, np.array([0.9, 0.5, 0.1], np.float32), np.array([2, 1, 0]))
    seen = classes.of_dataset(found)
    assert seen.class_index.tolist() == [0, 1]
    np.testing.assert_array_equal(seen.boxes_xyxy, boxes[[0, 2]])
    np.testing.assert_array_equal(seen.scores, found.scores[[0, 2]])
    truth = classes.of_model(GroundTruth(np.array([1, 0, 1]), boxes))
    assert truth.class_index.tolist() == [0, 2, 0]


def test_a_class_that_the_weights_do_not_know_is_told_and_left_out(caplog):
    with caplog.at_level(logging.WARNING):
        classes = share(("cat", "fork\x1b[2J"), ("cat", "dog"))
    assert classes.in_model.tolist() == [0, NOTHING]
    assert "not trained for 1 class of the dataset" in caplog.text
    assert "\x1b" not in caplog.text
    truth = classes.of_model(GroundTruth(np.array([1, 0]), np.zeros((2, 4))))
    assert truth.class_index.tolist() == [0]


def test_weights_without_names_are_matched_by_number(caplog):
    classes = share(("cat", "dog"), (), 2)
    assert classes.in_model.tolist() == classes.in_dataset.tolist() == [0, 1]
    assert not caplog.records


@pytest.mark.parametrize(
    ("known", "number", "text"),
    [
        (("Cat", "bird"), None, "none has the same name in both"),
        ((), 3, "has 2 classes, --weights w.pt 3 without names"),
    ],
)
def test_classes_that_do_not_fit_are_an_error_with_the_next_step(known, number, text):
    with pytest.raises(UserError, match=text) as caught:
        share(("cat", "dog"), known, number)
    assert "--data d.yaml" in str(caught.value)
