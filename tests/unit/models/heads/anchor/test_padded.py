"""The loss with fixed shapes equals the plain one, for any targets."""

import dataclasses

import numpy as np
import pytest

from duet.backend import autograd, ops
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.heads.anchor.assign import padded_size
from duet.models.heads.anchor.loss import DetectionLoss
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.data.loading.batch import Targets
from tests.losses import arrays_of


def make_loss(num_classes, image_size=640, **changes):
    model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes))
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    gains = hyp.loss_gains().scaled(3, num_classes, image_size)
    anchors = ops.to_numpy(model.head.anchors)
    return DetectionLoss(anchors, num_classes, dataclasses.replace(gains, **changes))


def padded(loss):
    """The loss as it is compiled, but eager."""
    return loss.compiled(lambda cost, most_shapes: cost)


def values_and_gradients(loss, maps, targets):
    raw = [autograd.variable(level) for level in maps]
    terms = loss(raw, targets)
    gradients = autograd.gradients(terms.total, raw)
    values = [float(array) for array in arrays_of(terms).values()]
    return values, [ops.to_numpy(gradient) for gradient in gradients]


def draw_targets(count, images, num_classes, seed=0):
    random = np.random.Generator(np.random.Philox(seed))
    boxes = np.concatenate(
        [random.uniform(0, 1, (count, 2)), np.exp(random.uniform(-3.5, -0.2, (count, 2)))], axis=1
    )
    return Targets(
        np.sort(random.integers(0, images, count)),
        random.integers(0, num_classes, count),
        boxes.astype(np.float32),
    )


def draw_maps(images, num_classes):
    random = np.random.Generator(np.random.Philox(1))
    return [random.normal(size=(images, 3, side, side, 5 + num_classes)) for side in (8, 4, 2)]


def assert_equal_losses(plain, maps, targets, tolerance):
    """Terms relative to themselves, gradients relative to the largest of a level."""
    expected, expected_gradients = values_and_gradients(plain, maps, targets)
    values, gradients = values_and_gradients(padded(plain), maps, targets)
    np.testing.assert_allclose(values, expected, rtol=tolerance)
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("count", [1, 40, 400])
@pytest.mark.parametrize("num_classes", [1, 3])
def test_any_number_of_targets_and_classes_costs_the_same(count, num_classes):
    # 400 targets claim many cells several times and need the second size. In float64 only OneFlow's
    # float32 constants are left, the 1e-7 of denominators among them.
    plain = make_loss(num_classes, 64, objectness_positive=1.5, classification_positive=0.7)
    targets = draw_targets(count, 3, num_classes)
    assert_equal_losses(plain, draw_maps(3, num_classes), targets, 1e-9)


def test_sizes_are_few_and_hold_what_is_asked():
    counts = (0, 1, 256, 257, 1024, 1025, 5000)
    assert [padded_size(count) for count in counts] == [256, 256, 256, 512, 1024, 2048, 8192]
