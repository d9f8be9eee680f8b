"""Three updates of the anchor-free models against a stored run of the public package.

In float64 both runs round little: what is left are the eps of denominators and OneFlow's float32
constants, which each update amplifies.
"""

import numpy as np
import pytest

from duet.backend import autograd, nn, ops, optim
from duet.models.training.optimizer import ModelEMA, parameter_groups
from duet.models.training.step import GRADIENT_NORM_LIMIT
from duet.models.training.step_watch import StageTimer
from tests.golden_models import drawn_input, info, loss_settings, stored
from tests.unit.models.heads.distribution.test_loss import targets_of
from tests.unit.models.heads.distribution.test_stored import model_of

NAMES = ("yolov5nu_w0125", "yolov8n_w0125")


def trainable(name):
    model = model_of(name)
    for module in model.modules():
        nn.set_trainable([p for _, p in nn.named_parameters(module)], True)
    model = nn.place(model, "cpu", "float64")
    model.train()
    return model


@pytest.mark.parametrize("name", NAMES)
def test_three_updates_match_stored_losses_and_weights(name):
    wanted, case = stored(f"anchor_free/steps/{name}"), info("anchor_free/steps")[name]
    model = trainable(name)
    before = nn.state_arrays(model)
    average, loss = ModelEMA(model), model.head.make_loss(loss_settings())
    optimizer = optim.SGD(parameter_groups(model, 5e-4))
    parameters = [p for _, p in nn.named_parameters(model)]
    images = ops.cast(ops.tensor(drawn_input(case["input"])), "float64")
    targets = targets_of(name, "random")
    for step, figures in enumerate(wanted["log_loss_box_cls_dfl_gradnorm_fp64"]):
        terms = autograd.value_and_backward(model, loss, images, targets, StageTimer())
        if step == 0:
            assert_gradients(model, wanted)
        norm = autograd.clip_gradients(parameters, GRADIENT_NORM_LIMIT)
        optimizer.step([0.01, 0.01, 0.01], 0.937)
        optimizer.zero_grad()
        average.update(model)
        found = [float(ops.to_numpy(x)) for x in (terms.total, *terms.by_name.values(), norm)]
        np.testing.assert_allclose(found, figures, rtol=1e-5)
    for part, trained in (("model", model), ("ema", average.model)):
        state = nn.state_arrays(trained)
        for key, norm, change in zip(
            wanted["names"], wanted[f"{part}_l2_fp64"], wanted[f"{part}_change_l2_fp64"],
            strict=True,
        ):  # fmt: skip
            if key.endswith("num_batches_tracked"):
                continue
            moved = np.sqrt(((state[key] - before[key].astype(np.float64)) ** 2).sum())
            assert moved == pytest.approx(change, rel=1e-4, abs=1e-8), key
            assert np.sqrt((state[key] ** 2).sum()) == pytest.approx(norm, rel=1e-6), key


def assert_gradients(model, wanted):
    stored_norms = dict(zip(wanted["names"], wanted["grad_l2_first_step_fp64"], strict=True))
    for key, parameter in nn.named_parameters(model):
        found = np.sqrt((ops.to_numpy(parameter.grad) ** 2).sum())
        assert found == pytest.approx(stored_norms[key], rel=1e-5, abs=1e-9), key
