"""Weights become the predictor that the flags ask for; errors name the weights they mean."""

import logging

import numpy as np
import pytest

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector
from duet.models.inference.predictor import input_size, make_predictor
from duet.models.inference.predictors import Augmented, Ensemble
from duet.utils.errors import UserError
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.weights.load import load_weights
from tests.small import (
    initial_model,
    untrained,
    with_trained_size,
    write_checkpoint,
    write_tiny_model,
)

NAMES = ("a", "b", "c")


def write_weights(folder, name, class_names=NAMES, seed=0):
    model = initial_model(write_tiny_model(folder), seed, len(class_names))
    return load_weights(write_checkpoint(folder / name, untrained(model, class_names)))


@pytest.fixture
def weights(tmp_path):
    return [write_weights(tmp_path, f"{seed}.safetensors", seed=seed) for seed in (1, 2)]


def rows(model):
    images = np.random.Generator(np.random.Philox(5)).random((1, 3, 32, 64)).astype(np.float32)
    with autograd.no_grad():
        return model.decode_above(model(ops.tensor(images)), SuppressionSettings(0.0))[0]


def test_single_file_model_has_batch_norm_folded(weights):
    model, plain = (make_predictor(weights[:1], "cpu", fold=fold) for fold in (True, False))
    assert isinstance(model, Detector)
    assert "model.0.conv.bias" in nn.state_arrays(model)
    assert "model.0.bn.running_var" in nn.state_arrays(plain)
    # Float32 sums of a few layers in another order.
    np.testing.assert_allclose(rows(model), rows(plain), rtol=1e-4, atol=1e-4)


def test_several_files_form_an_ordered_ensemble(weights):
    model = make_predictor(weights, "cpu")
    assert isinstance(model, Ensemble)
    alone = [rows(make_predictor([checkpoint], "cpu")) for checkpoint in weights]
    np.testing.assert_array_equal(rows(model), np.concatenate(alone))
    assert not np.array_equal(*alone)


def test_each_member_is_augmented(weights):
    model = make_predictor(weights, "cpu", augment=True)
    assert all(isinstance(member, Augmented) for member in model.members)
    # Three anchors in cells of 8 and 16 px: of 32 x 64 px without the coarser map, of 26.6 x 53.1,
    # which is 32 x 64 rounded up, with both, of 21.4 x 42.9, so 32 x 48, without the finer one.
    assert len(rows(model)) == 2 * 3 * (4 * 8 + (4 * 8 + 2 * 4) + 2 * 3)


def test_half_on_a_cpu_is_float32_with_a_log_line(weights, caplog):
    with caplog.at_level(logging.INFO, "models"):
        model = make_predictor(weights, "cpu", half=True)
    assert caplog.messages == ["--half: using float32 on a CPU"]
    np.testing.assert_array_equal(rows(model), rows(make_predictor(weights, "cpu")))


def test_ensemble_refuses_differing_class_names(weights, tmp_path):
    other = write_weights(tmp_path, "other.safetensors", ("a", "c", "b"))
    with pytest.raises(UserError) as caught:
        make_predictor([weights[0], other], "cpu")
    assert str(caught.value) == (
        f"--weights {tmp_path / 'other.safetensors'}: class names differ from those of "
        f"{tmp_path / '1.safetensors'}: 'c' for 'b', 'b' for 'c'; files that detect together need "
        "the same classes in the same order"
    )


@pytest.mark.parametrize(
    ("stored", "size", "source"),
    [
        (48, 48, "the training size"),
        (40, 48, "the training size"),  # the next multiple of the stride
        (None, 640, "the default, because the weights do not store their training size"),
        (-3, 640, "the default, because the weights do not store their training size"),
    ],
)
def test_default_size_is_the_training_size(weights, caplog, stored, size, source):
    trained = [with_trained_size(weights[0], stored)]
    model = make_predictor(trained, "cpu")
    with caplog.at_level(logging.INFO, "models"):
        assert input_size(None, model, trained) == size
        assert caplog.messages == [f"images at {size} px, {source}"]
        assert input_size(64, model, trained) == 64 and len(caplog.messages) == 1


@pytest.mark.parametrize("size", [32, 64, 128])
def test_half_to_double_the_training_size_gives_no_warning(weights, caplog, size):
    trained = [with_trained_size(weights[0], 64)]
    assert input_size(size, make_predictor(trained, "cpu"), trained) == size
    assert caplog.messages == []


@pytest.mark.parametrize("size", [16, 144])
def test_distant_size_gives_one_warning(weights, caplog, size):
    """Of an ensemble, of the models that it concerns; a call for each of many images repeats it."""
    trained = [with_trained_size(weights[0], 64), with_trained_size(weights[1], size)]
    model = make_predictor(trained, "cpu")
    for _ in range(3):
        assert input_size(size, model, trained) == size
    assert caplog.messages == [
        f"{weights[0].path}: trained at 64 px, used at {size} px: expect worse results"
    ]


@pytest.mark.parametrize("names", [("class0", "class1", "class2"), ("0", "1", "2")])
def test_model_without_names_joins_any_ensemble(weights, tmp_path, names):
    other = write_weights(tmp_path, "other.safetensors", names)
    assert isinstance(make_predictor([weights[0], other], "cpu"), Ensemble)
