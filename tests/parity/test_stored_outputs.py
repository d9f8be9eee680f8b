"""The detector, its loss and its updates against outputs stored from the public YOLOv5.

Tolerances: the stored networks ran in float32 on another build; sums of a few hundred products
in another order differ by some 1e-6 relative a layer, about 1e-5 of the largest value over 24
layers. OneFlow's kernels add in an order of their own and land at the upper end.
"""

import json

import numpy as np
import pytest

from duet.backend import autograd, nn, ops, optim
from duet.models.detector import Detector, count_parameters
from duet.models.graph import read_model_yaml
from duet.models.heads.anchor.assign import assign_targets
from duet.models.training.optimizer import ModelEMA, parameter_groups
from duet.models.training.step import GRADIENT_NORM_LIMIT
from duet.models.training.step_watch import StageTimer
from duet.utils.data.loading.batch import Targets
from tests.environments import shared_path
from tests.golden_models import arrays_of, loss_settings

# Trainable parameters, and those with BatchNorm folded as the public tables count.
PUBLIC_PARAMETERS = {
    "yolov5n": (1_872_157, 1_867_405),
    "yolov5s": (7_235_389, 7_225_885),
    "hub/yolov5n6": (3_246_940, 3_239_884),
}


def stored(name):
    return np.load(shared_path(f"golden/yolov5n/{name}.npz"))


def stored_targets(name):
    rows = stored("targets")[name]
    return Targets(rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64), rows[:, 2:])


@pytest.fixture
def detector():
    model = Detector(read_model_yaml("models/yolov5n.yaml"))
    nn.load_state_arrays(model, dict(stored("state_fp32")))
    return model


def make_loss(model):
    return model.head.make_loss(loss_settings())


def largest_error(actual, expected):
    """Largest difference over the largest expected magnitude."""
    return np.abs(actual - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("name", PUBLIC_PARAMETERS)
def test_parameter_names_shapes_and_counts_are_public(name):
    model = Detector(read_model_yaml(f"models/{name}.yaml"))
    expected = json.loads(shared_path("golden/config_state_shapes.json").read_text())
    shapes = {name: list(tensor.shape) for name, tensor in nn.state_tensors(model).items()}
    assert shapes == expected[f"{name}.yaml"]
    scales = [p for name, p in nn.named_parameters(model) if name.endswith(".bn.weight")]
    trained = count_parameters(model)
    # Folded into its convolution, BatchNorm leaves a bias per channel.
    assert (trained, trained - sum(x.shape[0] for x in scales)) == PUBLIC_PARAMETERS[name]
    assert model.head.strides == (8, 16, 32, 64)[: len(model.head.strides)]


def test_state_matches_public_names_and_order(detector):
    assert list(nn.state_tensors(detector)) == list(stored("state_fp32"))


def test_evaluation_matches_stored_maps_and_boxes(detector):
    expected = stored("eval_outputs")
    model = nn.frozen_copy(detector)
    with autograd.no_grad():
        raw = model(ops.tensor(stored("inputs")["random"]))
        decoded = ops.to_numpy(model.decode(raw))
    for level in range(3):
        actual = ops.to_numpy(raw[level])
        assert largest_error(actual, expected[f"fp32_random_raw{level}"]) < 2e-5
    assert largest_error(decoded, expected["fp32_random_decoded"]) < 2e-5


@pytest.mark.parametrize("name", ["random", "edge", "empty"])
def test_assignment_matches_stored_values(detector, name):
    expected = stored("train_loss")
    anchors = ops.to_numpy(detector.head.anchors)
    levels = assign_targets(stored_targets(name), anchors, [(24, 32), (12, 16), (6, 8)], 4.0)
    for level, found in enumerate(levels):
        place = np.stack([found.image_index, found.anchor_index, found.row, found.column])
        assert np.array_equal(place, expected[f"fp32_{name}_ind{level}"])
        assert np.array_equal(found.class_index, expected[f"fp32_{name}_tcls{level}"])
        assert np.array_equal(found.boxes_cxcywh, expected[f"fp32_{name}_tbox{level}"])
        assert np.array_equal(found.anchors_wh, expected[f"fp32_{name}_anch{level}"])


# float64 predictions still meet targets of float32 in both, and the stored items are float32.
@pytest.mark.parametrize("name", ["random", "edge", "empty"])
@pytest.mark.parametrize(("precision", "gradient_tolerance"), [("fp32", 2e-6), ("fp64", 1e-6)])
def test_loss_and_gradients_match_stored_values(detector, precision, name, gradient_tolerance):
    expected = stored("train_loss")
    raw = [autograd.variable(expected[f"{precision}_random_p{level}"]) for level in range(3)]
    terms = make_loss(detector)(raw, stored_targets(name))
    items = [float(ops.to_numpy(term)) for term in terms.by_name.values()]
    np.testing.assert_allclose(items, expected[f"{precision}_{name}_items"], rtol=2e-6)
    total = float(ops.to_numpy(terms.total))
    np.testing.assert_allclose(total, expected[f"{precision}_{name}_loss"][0], rtol=2e-6)
    for level, gradient in enumerate(autograd.gradients(terms.total, raw)):
        actual = ops.to_numpy(gradient)
        wanted = expected[f"{precision}_{name}_gp{level}"]
        assert largest_error(actual, wanted) < gradient_tolerance


def backward(model, loss, dtype="float32"):
    images = ops.cast(ops.tensor(stored("inputs")["random"]), dtype)
    return autograd.value_and_backward(model, loss, images, stored_targets("random"), StageTimer())


def test_training_pass_matches_stored_statistics(detector):
    detector.train()
    backward(detector, make_loss(detector))
    statistics = stored("bn_after_one_train_forward")
    state = nn.state_arrays(detector)
    for name in statistics:
        np.testing.assert_allclose(state[name], statistics[name], rtol=1e-4, atol=1e-5)
    expected = stored("grads_fp32")
    gradients = {name: p.grad for name, p in nn.named_parameters(detector)}
    assert set(gradients) == set(expected)
    # Relative to each tensor's largest gradient: float32 sums over up to 12,288 cells.
    worst = max(largest_error(ops.to_numpy(gradients[name]), expected[name]) for name in expected)
    assert worst < 2e-3


def test_three_updates_match_stored_weights_and_average(detector):
    expected = stored("steps3_SGD")
    model = nn.place(detector, "cpu", "float64")
    model.train()
    average, loss = ModelEMA(model), make_loss(model)
    optimizer = optim.SGD(parameter_groups(model, 5e-4))
    parameters = [p for _, p in nn.named_parameters(model)]
    # In float64 both backends agree with each other to 1e-8. What is left is the rounding of the
    # stored run, which was float32, and which each update amplifies: measured 4e-6, 3.5e-4 and
    # 7.9e-4 for the gradient norm, the worst of the five.
    tolerances = (1e-5, 1e-3, 2e-3)
    log = expected["log_loss_box_obj_cls_gradnorm"]
    for stored_figures, tolerance in zip(log, tolerances, strict=True):
        terms = backward(model, loss, "float64")
        norm = autograd.clip_gradients(parameters, GRADIENT_NORM_LIMIT)
        optimizer.step([0.01, 0.01, 0.01], 0.937)
        optimizer.zero_grad()
        average.update(model)
        figures = (terms.total, *terms.by_name.values(), norm)
        actual = [float(ops.to_numpy(figure)) for figure in figures]
        np.testing.assert_allclose(actual, stored_figures, rtol=tolerance)
    for prefix, trained in (("model", model), ("ema", average.model)):
        for name, array in nn.state_arrays(trained).items():
            # Measured 1.3e-4 for the worst of 1.9 million numbers, a running variance.
            np.testing.assert_allclose(
                array, expected[f"{prefix}.{name}"], rtol=1e-3, atol=2e-4, err_msg=name
            )


def test_parameter_groups_match_public_ones(detector):
    groups = json.loads(shared_path("golden/yolov5n/optimizer_groups_SGD.json").read_text())
    actual = [
        [len(group), sum(int(np.prod(p.shape)) for p in group.values()), decay]
        for group, decay in parameter_groups(detector, 5e-4)
    ]
    assert actual == [row[:3] for row in groups["groups_n_numel_wd_lr"]]


# Label smoothing, focal loss and weights of positives. Tolerances are those above.
VARIANTS = {
    "smooth": {"label_smoothing": 0.1},
    "focal": {"fl_gamma": 1.5},
    "posw": {"cls_pw": 1.7, "obj_pw": 0.6},
    "anchor_t": {"anchor_t": 2.91},
}


def eager(cost, most_shapes):
    return cost


FORMS = {
    "plain": lambda loss: loss,
    "padded": lambda loss: loss.compiled(eager),  # as it is compiled
}


def loss_variant(model, fused=False, label_smoothing=0.0, **hyp):
    options = {"fused": fused, "label_smoothing": label_smoothing}
    return model.head.make_loss(loss_settings(640, options, **hyp))


def maps():
    return [stored("train_loss")[f"fp32_random_p{level}"] for level in range(3)]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_variants_match_stored_values_and_gradients(detector, variant, form, fused):
    expected = stored("loss_variants")
    loss = FORMS[form](loss_variant(detector, fused, **VARIANTS[variant]))
    raw = [autograd.variable(level) for level in maps()]
    terms = loss(raw, stored_targets("random"))
    *items, total = arrays_of(terms).values()
    np.testing.assert_allclose(items, expected[f"{variant}_items"], rtol=2e-6)
    np.testing.assert_allclose(total, expected[f"{variant}_loss"][0], rtol=2e-6)
    for level, gradient in enumerate(autograd.gradients(terms.total, raw)):
        wanted = expected[f"{variant}_gp{level}"]
        assert largest_error(ops.to_numpy(gradient), wanted) < 2e-6
