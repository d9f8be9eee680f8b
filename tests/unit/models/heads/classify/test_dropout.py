"""Dropout is drawn on the host, for an image of a batch, and is off in evaluation."""

import numpy as np
import pytest

from duet.backend import nn, ops
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.heads.base import PassImages
from duet.models.heads.classify.head import Dropout
from tests.small_classes import write_tiny_classifier


def factors(seed=3, batch_number=5, batch_size=8, places=None, probability=0.25):
    dropout = Dropout(1280)
    places = np.arange(batch_size) if places is None else np.array(places, np.int64)
    like = ops.tensor(np.zeros(1, np.float32))
    dropout.draw(probability, PassImages(seed, batch_number, batch_size, places), like)
    return ops.to_numpy(dropout.factors)


def test_kept_numbers_count_more_by_what_is_left_out():
    found = factors(batch_size=64)
    assert found.dtype == np.float32 and found.shape == (64, 1280)
    assert set(np.unique(found)) == {np.float32(0), np.float32(1 / 0.75)}
    # 81,920 draws: five standard deviations of their mean are 0.0076.
    assert np.mean(found == 0) == pytest.approx(0.25, abs=0.0076)


def test_a_part_of_a_batch_gets_its_rows_of_the_whole():
    whole = factors()
    np.testing.assert_array_equal(factors(places=[2, 3, 4]), whole[2:5])
    assert factors(places=[]).shape == (0, 1280)


def test_the_draws_are_those_of_philox():
    """So that both backends, and every version, leave out the same."""
    counter = np.array([0, 0, 5, 0], np.uint64)
    key = np.array([3, 15], np.uint64)
    random = np.random.Generator(np.random.Philox(counter=counter, key=key)).random((8, 1280))
    np.testing.assert_array_equal(factors() > 0, random >= 0.25)


@pytest.fixture
def classifier(tmp_path):
    model = Detector(read_model_yaml(write_tiny_classifier(tmp_path)))
    model.initialize(seed=0)
    return model


def logits(model, images):
    return ops.to_numpy(model(images)[0])


def test_dropout_changes_training_alone(classifier):
    images = ops.tensor(np.random.default_rng(0).random((2, 3, 32, 32)).astype(np.float32))
    plain_train, plain_eval = logits(classifier.train(), images), logits(classifier.eval(), images)
    classifier.head.dropout = 0.5
    classifier.head.draw(PassImages(0, 0, 2, np.arange(2)))
    trained = logits(classifier.train(), images)
    assert (trained != plain_train).all()
    # What is left out is the mean map, before the product.
    state = nn.state_arrays(classifier.head.linear)
    keeps = ops.to_numpy(classifier.head._dropout.factors)
    assert ((keeps == 0).sum(1) > 0).all() and keeps.shape[1] == state["weight"].shape[1]
    running = logits(classifier.eval(), images)
    assert running.shape == plain_eval.shape
    classifier.head._dropout.factors = None
    np.testing.assert_array_equal(running, logits(classifier.eval(), images))
