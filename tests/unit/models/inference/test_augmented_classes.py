"""Test-time augmentation of a classifier: the mean over an image and its mirror."""

import numpy as np
import pytest

from backend import autograd, ops
from models.detector import Detector
from models.graph import read_model_yaml
from models.inference.predictors import Augmented
from tests.small_classes import write_tiny_classifier


@pytest.fixture
def model(tmp_path):
    model = Detector(read_model_yaml(write_tiny_classifier(tmp_path)))
    model.initialize(seed=3)
    return model.eval()


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_scores_are_the_mean_of_an_image_and_its_mirror(model):
    images = np.random.default_rng(0).random((3, 3, 32, 40)).astype(np.float32)
    images[:, :, :, :16] *= 0.2  # the mirror is another image
    with autograd.no_grad():
        found = Augmented(model)
        rows = found.decode_above(found(ops.tensor(images)), 0.9)  # whatever the threshold
        logits = [ops.to_numpy(model(ops.tensor(np.ascontiguousarray(x)))[0])
                  for x in (images, images[..., ::-1])]  # fmt: skip
    plain, mirrored = map(softmax, logits)
    assert np.abs(plain - mirrored).max() > 1e-4
    assert [row.shape for row in rows] == [(1, 3)] * 3
    np.testing.assert_allclose(np.concatenate(rows), (plain + mirrored) / 2, atol=1e-6)
    np.testing.assert_allclose(np.sum(rows, axis=(1, 2)), 1, atol=1e-6)
