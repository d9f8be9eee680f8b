"""Complete IoU, the focal loss, the loss around them and the order of equal claims on a cell."""

import dataclasses

import numpy as np
import pytest

from duet.backend import autograd, ops
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.heads.anchor.assign import padded_size, wins_cell
from duet.models.heads.anchor.boxes import complete_iou
from duet.models.heads.anchor.loss import DetectionLoss, cross_entropy
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.data.loading.batch import Targets

NO_TARGETS = Targets(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 4), np.float32))
ONE_TARGET = Targets(np.array([1]), np.array([2]), np.array([[0.5, 0.5, 0.2, 0.3]], np.float32))

# Of one place and size: most of them claim cells that others claim, too.
CROWDED = Targets(
    np.repeat(np.arange(2), 6),
    np.arange(12) % 3,
    np.tile(np.array([[0.4, 0.6, 0.2, 0.3]], np.float32), (12, 1)),
)


def make_loss(num_classes, box_iou=complete_iou, **changes):
    model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes))
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    anchors = ops.to_numpy(model.head.anchors)
    gains = hyp.loss_gains().scaled(3, num_classes, 64)
    return DetectionLoss(anchors, num_classes, dataclasses.replace(gains, **changes), box_iou)


def raw_maps(num_classes, dtype=np.float64, images=2, seed=0):
    generator = np.random.default_rng(seed)
    return [
        autograd.variable(generator.normal(size=(images, 3, s, s, 5 + num_classes)).astype(dtype))
        for s in (8, 4, 2)
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complete_iou_is_finite_for_degenerate_boxes(dtype):
    sides = np.array([0, 1e-12, 1e-3, 1, 1e4], dtype)
    width, height = (grid.ravel() for grid in np.meshgrid(sides, sides))
    boxes = np.stack([np.zeros_like(width), np.zeros_like(width), width, height], axis=1)
    first = autograd.variable(np.repeat(boxes, len(boxes), axis=0))
    iou = complete_iou(first, ops.tensor(np.tile(boxes, (len(boxes), 1))))
    (gradient,) = autograd.gradients(ops.sum(iou), [first])
    assert np.isfinite(ops.to_numpy(iou)).all()
    assert np.isfinite(ops.to_numpy(gradient)).all()
    assert (ops.to_numpy(iou) > -1.5).all() and (ops.to_numpy(iou) <= 1 + 1e-6).all()


def drawn_targets(count, num_classes):
    """Return targets of all sizes in three images."""
    random = np.random.Generator(np.random.Philox(0))
    sides = np.exp(random.uniform(-3.5, -0.2, (count, 2)))
    boxes = np.concatenate([random.uniform(0, 1, (count, 2)), sides], axis=1).astype(np.float32)
    images = np.sort(random.integers(0, 3, count))
    return Targets(images, random.integers(0, num_classes, count), boxes)


def test_single_class_has_no_classification_loss():
    targets = ONE_TARGET._replace(class_index=np.array([0]))
    terms = make_loss(1)(raw_maps(1), targets)
    assert float(ops.to_numpy(terms.by_name["classification"])) == 0
    assert float(ops.to_numpy(terms.by_name["box"])) > 0


def test_last_of_equal_claims_wins_the_cell():
    assert wins_cell(np.array([5, 2, 5, 0]), 6).tolist() == [False, True, True, True]
    assert len(wins_cell(np.zeros(0, np.int64), 6)) == 0


def test_gains_scale_with_classes_levels_and_image_size():
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    gains = hyp.loss_gains().scaled(num_levels=4, num_classes=20, image_size=320)
    assert gains.box == pytest.approx(0.05 * 3 / 4)
    assert gains.objectness == pytest.approx(1.0 * 3 / 4 / 4)
    assert gains.classification == pytest.approx(0.5 * 20 / 80 * 3 / 4)


@pytest.mark.parametrize(
    ("num_levels", "balance"),
    [
        (1, [4.0]),
        (2, [4.0, 1.0]),
        (3, [4.0, 1.0, 0.4]),
        (4, [4.0, 1.0, 0.25, 0.06]),
        (5, [4.0, 1.0, 0.25, 0.06, 0.02]),
    ],
)
def test_each_level_has_its_objectness_weight(num_levels, balance):
    """A level of one cell whose logit is x costs log(1 + exp(x)) without targets."""
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    gains = hyp.loss_gains().scaled(num_levels, 3, 640)
    loss = DetectionLoss(np.ones((num_levels, 1, 2)), 3, gains)
    logits = np.linspace(-2, 2, num_levels)
    raw = [ops.tensor(np.full((1, 1, 1, 1, 8), logit)) for logit in logits]
    expected = gains.objectness * (np.log1p(np.exp(logits)) * balance).sum()
    found = loss(raw, NO_TARGETS).by_name["objectness"]
    assert float(ops.to_numpy(found)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gamma", [1e-3, 0.5, 1.5, 10.0])
def test_focal_loss_and_gradient_are_finite_at_extremes(gamma):
    logits = np.array([-1e4, -100, -20, 0, 20, 100, 1e4], np.float32)
    for truth in (0.0, 0.4, 1.0):
        x = autograd.variable(logits)
        loss = cross_entropy(x, ops.tensor(np.full(7, truth, np.float32)), 1.0, gamma)
        (gradient,) = autograd.gradients(loss, [x])
        assert np.isfinite(ops.to_numpy(loss)) and np.isfinite(ops.to_numpy(gradient)).all()


def test_gamma_zero_equals_plain_cross_entropy():
    x, truth = ops.tensor(np.array([0.5, -2.0])), ops.tensor(np.array([1.0, 0.2]))
    found = float(ops.to_numpy(cross_entropy(x, truth, 2.0, 0.0)))
    assert found == float(ops.to_numpy(ops.bce_with_logits(x, truth, 2.0)))


def test_padded_sizes_are_few_and_sufficient():
    counts = (0, 1, 256, 257, 1024, 1025, 5000)
    assert [padded_size(count) for count in counts] == [256, 256, 256, 512, 1024, 2048, 8192]
