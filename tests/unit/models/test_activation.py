"""Activations by name: their values and gradients, and that a model uses its own."""

import numpy as np
import pytest
import yaml

from duet.backend import autograd, nn, ops
from duet.models.blocks.conv import find_activation
from duet.models.detector import Detector
from duet.models.graph import parse_model, read_model_yaml
from duet.utils.project import PROJECT

POINTS = np.concatenate([np.linspace(-8, 8, 65) + 1e-3, [-60.0, 60.0]])
FORMULAS = {
    None: lambda x: x / (1 + np.exp(-x)),
    "nn.SiLU()": lambda x: x / (1 + np.exp(-x)),
    "SiLU": lambda x: x / (1 + np.exp(-x)),
    "nn.ReLU()": lambda x: np.maximum(x, 0),
    "nn.LeakyReLU(0.1)": lambda x: np.where(x > 0, x, np.float32(0.1) * x),
    "nn.LeakyReLU(negative_slope=0.5)": lambda x: np.where(x > 0, x, 0.5 * x),
    "nn.LeakyReLU()": lambda x: np.where(x > 0, x, np.float32(0.01) * x),
    "nn.Hardswish()": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "nn.Mish()": lambda x: x * np.tanh(np.log1p(np.exp(x))),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_values_and_gradients_follow_the_formula(name):
    activation, formula = find_activation(name), FORMULAS[name]
    x = autograd.variable(POINTS)
    y = activation(x)
    np.testing.assert_allclose(ops.to_numpy(y), formula(POINTS), rtol=1e-12, atol=1e-12)
    (gradient,) = autograd.gradients(ops.sum(y), [x])
    wanted = (formula(POINTS + 1e-6) - formula(POINTS - 1e-6)) / 2e-6
    # The differences err by rounding / step, 60 * 1e-16 / 1e-6.
    np.testing.assert_allclose(ops.to_numpy(gradient), wanted, atol=1e-8)


def test_all_convolutions_of_a_model_use_its_activation_and_its_spec_says_so():
    document = yaml.safe_load((PROJECT / "models" / "yolov5n.yaml").read_text())
    images = ops.tensor(np.random.default_rng(0).random((1, 3, 64, 64)).astype(np.float32))
    found = {}
    for name in ("nn.SiLU()", "nn.LeakyReLU(1)", "nn.LeakyReLU(1.0)"):
        spec = parse_model({**document, "act": name, "width_multiple": 0.125}, num_classes=1)
        assert spec == parse_model(spec.document)
        model = Detector(spec)
        model.initialize(0)
        with autograd.no_grad():
            found[name] = ops.to_numpy(nn.frozen_copy(model)(images)[0])
    assert not np.array_equal(found["nn.SiLU()"], found["nn.LeakyReLU(1)"])
    np.testing.assert_array_equal(found["nn.LeakyReLU(1)"], found["nn.LeakyReLU(1.0)"])


def test_attention_starts_from_weights_that_are_drawn():
    model = Detector(read_model_yaml("yolov5s-transformer", num_classes=1))
    model.initialize(3)
    state = nn.state_arrays(model)
    for name in ("linear.weight", "linear.bias", "tr.0.q.weight", "tr.0.ma.in_proj_weight",
                 "tr.0.ma.in_proj_bias"):  # fmt: skip
        drawn, bound = state[f"model.8.m.{name}"], 1 / np.sqrt(256)
        assert np.abs(drawn).max() <= bound
        # Uniform: the deviation is bound / sqrt(3), here from 256 draws or more.
        assert drawn.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)
