"""Classifiers against stored public outputs, losses and gradients; dropout.

Tolerance: 1e-5 of the largest value for float32 sums of a whole network in another order, doubled
for gradients, which go through it twice; OneFlow's BatchNorm rounds more in training, 2e-4 was
measured.
"""

from functools import cache

import numpy as np
import pytest

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector, normalized
from duet.models.graph import plan_layers, read_model_yaml
from duet.models.heads.base import PassImages
from duet.models.heads.classify.head import ClassificationLoss, dropout_factors
from duet.models.training.step_watch import StageTimer
from duet.utils.data.loading.batch import Targets
from tests.golden_models import assert_near, draw, drawn_input, info, numbers_by_layer, stored
from tests.small import write_classifier_yaml

SIZES = ("n", "s")
NETWORK_TOLERANCE = 1e-5
TRAINED_TOLERANCE = 4e-4


@cache
def golden(size):
    return dict(stored(f"classify/yolov5{size}-cls"))


def drawn(size, folder="classify"):
    """The model with weights by their names, for images as they are."""
    model = Detector(read_model_yaml(f"models/yolov5{size}-cls.yaml", 10))
    gain = info(folder)["gain"][size]
    state = nn.state_arrays(model)
    nn.load_state_arrays(model, {name: draw("", name, x, gain) for name, x in state.items()})
    model.head.image_mean = None  # the stored input is normalized already
    return model


def targets_of(size):
    classes = golden(size)["targets"]
    boxes = np.tile(np.float32([0.5, 0.5, 1, 1]), (len(classes), 1))
    return Targets(np.arange(len(classes)), classes, boxes)


@pytest.mark.parametrize("classes", [10, 1000])
@pytest.mark.parametrize("size", "nsmlx")
def test_classifier_state_matches_public_counts(size, classes):
    plans = plan_layers(read_model_yaml(f"models/yolov5{size}-cls.yaml", classes))
    case = info("classify")[f"yolov5{size}-cls_{classes}"]
    wanted = numbers_by_layer(case["state"])  # of 10 classes, only the head's
    assert len(plans) == case["top_level_layers"]
    assert {layer: plans[layer].numbers for layer in wanted} == wanted
    trained = sum(cost.weights + cost.biases for plan in plans for _, cost in plan.costs)
    channels = sum(cost.normalized for plan in plans for _, cost in plan.costs)
    assert trained + 2 * channels == case["parameters"]


@pytest.mark.parametrize("size", SIZES)
def test_evaluation_logits_and_layers_match_stored_values(size):
    model, wanted = drawn(size).eval(), golden(size)
    with autograd.no_grad():
        *layers, (logits,) = model.run_layers(ops.tensor(drawn_input([2, 3, 224, 192])))
    assert_near(ops.to_numpy(logits), wanted["eval_logits_fp64"], NETWORK_TOLERANCE)
    found = [ops.to_numpy(layer).astype(np.float64) for layer in layers]
    assert list(found[8].shape) == wanted["layer8_shape"].tolist()
    np.testing.assert_allclose([x.std(ddof=1) for x in found], wanted["layer_std"][:9], rtol=1e-5)
    np.testing.assert_allclose(
        [np.sqrt((x * x).sum()) for x in found], wanted["layer_l2"][:9], rtol=2e-5
    )  # stored as float32 sums
    for smoothing in ("0", "0.1", "0.2"):
        loss = ClassificationLoss(float(smoothing))
        found = loss((logits,), targets_of(size)).by_name["classification"]
        assert_near(
            ops.to_numpy(found), wanted[f"loss_eval_smoothing{smoothing}"], NETWORK_TOLERANCE
        )


def test_training_loss_and_gradients_match_stored_values():
    model, wanted = drawn("n"), golden("n")
    model.train()
    images = ops.tensor(drawn_input([2, 3, 224, 192]))
    seen = []

    def forward(x):
        seen.append(model(x))
        return seen[0]

    loss = ClassificationLoss(0.1)
    terms = autograd.value_and_backward(forward, loss, images, targets_of("n"), StageTimer())
    assert_near(ops.to_numpy(seen[0][0]), wanted["train_logits"], TRAINED_TOLERANCE)
    mean = float(ops.to_numpy(terms.by_name["classification"]))
    assert mean == pytest.approx(wanted["loss_train_smoothing0.1"], rel=TRAINED_TOLERANCE)
    assert float(ops.to_numpy(terms.total)) == pytest.approx(mean)
    gradients = {n: ops.to_numpy(p.grad) for n, p in nn.named_parameters(model)}
    names = info("classify")["grad_l2_names_n"]
    assert list(gradients) == names
    norms = [np.sqrt((gradients[name].astype(np.float64) ** 2).sum()) for name in names]
    np.testing.assert_allclose(norms, wanted["grad_l2"], rtol=TRAINED_TOLERANCE)
    for name in ("linear", "conv0"):
        place = {"linear": "model.9.linear.weight", "conv0": "model.0.conv.weight"}[name]
        assert_near(gradients[place], wanted[f"grad_{name}_weight"], TRAINED_TOLERANCE)


def test_model_normalizes_classifier_images_itself():
    model = drawn("n").eval()
    images = drawn_input([1, 3, 64, 64])
    with autograd.no_grad():
        (plain,) = model(normalized(ops.tensor(images), *IMAGENET))
        del model.head.image_mean
        (own,) = model(ops.tensor(images))
    np.testing.assert_array_equal(ops.to_numpy(own), ops.to_numpy(plain))


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_grey_image_is_normalized_by_luma_of_mean_and_std():
    images = np.random.default_rng(0).random((1, 1, 4, 4)).astype(np.float32)
    luma = np.array([0.299, 0.587, 0.114])
    wanted = (images - luma @ IMAGENET[0]) / (luma @ IMAGENET[1])
    found = ops.to_numpy(normalized(ops.tensor(images), *IMAGENET))
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def factors(seed=3, batch_number=5, batch_size=8, places=None, probability=0.25):
    places = np.arange(batch_size) if places is None else np.array(places, np.int64)
    return dropout_factors(probability, PassImages(seed, batch_number, batch_size, places))


def test_dropout_of_a_sub_batch_equals_rows_of_the_whole():
    whole = factors()
    np.testing.assert_array_equal(factors(places=[2, 3, 4]), whole[2:5])
    assert factors(places=[]).shape == (0, 1280)


def test_dropout_draws_are_philox_and_rescaled():
    """So that both backends, and every version, leave out the same."""
    counter = np.array([0, 0, 5, 0], np.uint64)
    key = np.array([3, 15], np.uint64)
    random = np.random.Generator(np.random.Philox(counter=counter, key=key)).random((8, 1280))
    np.testing.assert_array_equal(factors(), (random >= 0.25) / 0.75)


@pytest.fixture
def classifier(tmp_path):
    model = Detector(read_model_yaml(write_classifier_yaml(tmp_path)))
    model.initialize(seed=0)
    return model


def logits(model, images):
    return ops.to_numpy(model(images)[0])


def test_dropout_changes_only_training(classifier):
    images = ops.tensor(np.random.default_rng(0).random((2, 3, 32, 32)).astype(np.float32))
    plain_train, plain_eval = logits(classifier.train(), images), logits(classifier.eval(), images)
    classifier.head.dropout = 0.5
    classifier.head.draw(PassImages(0, 0, 2, np.arange(2)))
    trained = logits(classifier.train(), images)
    assert (trained != plain_train).all()
    # What is left out is the mean map, before the product.
    state = nn.state_arrays(classifier.head.linear)
    keeps = ops.to_numpy(classifier.head._factors)
    assert ((keeps == 0).sum(1) > 0).all() and keeps.shape[1] == state["weight"].shape[1]
    running = logits(classifier.eval(), images)
    assert running.shape == plain_eval.shape
    classifier.head._factors = None
    np.testing.assert_array_equal(running, logits(classifier.eval(), images))
