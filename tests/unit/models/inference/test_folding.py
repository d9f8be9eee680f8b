"""Folded convolutions give what convolution and BatchNorm give; the stored values say so too."""

import numpy as np
import pytest

from backend import autograd, nn, ops
from models.blocks.conv import Conv
from models.detector import Detector
from models.graph import read_model_yaml
from models.inference.predictor import fold_batch_norm
from tests.golden_models import stored

NETWORK_TOLERANCE = 2e-5  # as in test_augmented.py


def decoded(model, images):
    with autograd.no_grad():
        return ops.to_numpy(model.decode(model(ops.tensor(images))))


def assert_near(found, wanted):
    assert found.shape == wanted.shape
    for columns in (np.s_[..., :4], np.s_[..., 4:]):
        largest = np.abs(wanted[columns]).max()
        np.testing.assert_allclose(
            found[columns], wanted[columns], rtol=0, atol=NETWORK_TOLERANCE * largest
        )


def test_predictions_are_the_stored_ones_of_the_folded_model():
    model = Detector(read_model_yaml("models/yolov5n.yaml"))
    nn.load_state_arrays(model, dict(stored("yolov5n/state_fp32")))
    fold_batch_norm(model)
    found = decoded(nn.frozen_copy(model), stored("yolov5n/inputs")["random"][:1])
    assert_near(found, stored("yolov5n/eval_outputs")["fp32_random_fused_decoded"][:1])


@pytest.mark.parametrize("arguments", [(4, 6, 3, 2), (4, 8, 1), (4, 8, 3, 1, None, 4)])
def test_a_folded_convolution_follows_the_formula(arguments):
    random = np.random.Generator(np.random.Philox(1))
    part = Conv(*arguments).eval()
    state = nn.state_arrays(part)
    for name, array in state.items():
        if array.ndim:
            state[name] = (0.5 + random.random(array.shape)).astype(np.float32)
    nn.load_state_arrays(part, state)
    fold_batch_norm(part)
    factor = state["bn.weight"] / np.sqrt(state["bn.running_var"].astype(np.float64) + 1e-3)
    wanted = {
        "conv.weight": state["conv.weight"] * factor.reshape(-1, 1, 1, 1),
        "conv.bias": state["bn.bias"] - state["bn.running_mean"] * factor,
    }
    found = nn.state_arrays(part)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        # eps is rounded to float32 in the layer, the result too.
        np.testing.assert_allclose(found[name], array, rtol=1e-6)


def test_a_model_is_folded_once():
    part = Conv(2, 3).eval()
    fold_batch_norm(part)
    once = nn.state_arrays(part)
    fold_batch_norm(part)
    for name, array in nn.state_arrays(part).items():
        np.testing.assert_array_equal(array, once[name])
