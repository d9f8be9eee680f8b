"""The loss of the anchor-free head against losses and gradients stored from the public package.

Tolerances: 1e-6 in float64, where the eps of denominators and OneFlow's float32 constants remain.
In float32 the stored losses are up to 2e-6 from those of float64; the sixth power of an overlap
makes 1e-5 of that in a gradient, relative to the largest of a map.
"""

import numpy as np
import pytest

from duet.backend import fused, ops
from duet.models.heads.anchor.boxes import complete_iou
from duet.models.heads.base import WholeBatch
from duet.models.heads.distribution.loss import DistributionLoss
from duet.utils.data.loading.batch import Targets
from tests.golden_models import arrays_of, assert_near, cost_of, info, loss_settings, stored

CASES = [(name, targets) for name in ("synthetic_nc3", "yolov5nu_w0125", "yolov5n6u_w0125",
         "yolov8n_w0125") for targets in ("random", "edge", "empty")]  # fmt: skip
CASES.append(("yolov8n", "random"))
TOLERANCES = {"fp32": 1e-5, "fp64": 1e-6}
DTYPES = {"fp32": np.float32, "fp64": np.float64}
STRIDES = (8, 16, 32)
NO_TARGETS = Targets(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 4), np.float32))


def eager(function, most_shapes):
    return function


FORMS = {
    "plain": lambda loss: loss,
    "padded": lambda loss: loss.compiled(eager),  # as it is compiled
}


def make_loss(strides, classes, is_fused=False):
    box_iou = fused.complete_iou if is_fused else complete_iou
    return DistributionLoss(strides, classes, loss_settings().gains, box_iou)


def maps_of(name):
    own = name == "synthetic_nc3"
    arrays = stored(f"anchor_free/loss/{name}" if own else f"anchor_free/models/{name}")
    strides = info("anchor_free/loss")["cases"][name]["strides"]
    return [arrays[f"raw{i}" if own else f"train_raw{i}"] for i in range(len(strides))]


def targets_of(name, which):
    rows = stored(f"anchor_free/loss/{name}")[f"targets_{which}"]
    return Targets(rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64), rows[:, 2:6])


def joined(gradients):
    """(B, 64 + C, N) of all levels."""
    return np.concatenate([x.reshape(*x.shape[:2], -1) for x in gradients], axis=2)


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(("name", "targets"), CASES)
def test_loss_and_gradients_match_stored_values(name, targets, precision, form, is_fused):
    case, wanted = info("anchor_free/loss")["cases"][name], stored(f"anchor_free/loss/{name}")
    key, tolerance = f"{precision}_{targets}_", TOLERANCES[precision]
    loss = FORMS[form](make_loss(case["strides"], case["nc"], is_fused))
    maps = [level.astype(DTYPES[precision]) for level in maps_of(name)]
    terms, gradients = cost_of(loss, maps, targets_of(name, targets))
    items = [terms[part] for part in ("box", "classification", "distribution")]
    np.testing.assert_allclose(items, wanted[f"{key}items_box_cls_dfl"], rtol=tolerance)
    total = wanted[f"{key}loss_box_cls_dfl"].sum()
    np.testing.assert_allclose(terms["total"], total, rtol=tolerance)
    found = joined(gradients)
    for step in (4, 8):
        if f"{key}grad_every{step}" in wanted.files:
            assert_near(found[..., ::step], wanted[f"{key}grad_every{step}"], tolerance)
    if f"{key}graw0" in wanted.files:
        assert_near(found, joined([wanted[f"{key}graw{i}"] for i in range(len(maps))]), tolerance)
    norms = wanted[f"{key}grad_l2_box_cls_per_level"]
    for level, norm in zip(gradients, norms, strict=True):
        parts = [np.sqrt((x.astype(float) ** 2).sum()) for x in (level[:, :64], level[:, 64:])]
        np.testing.assert_allclose(parts, norm, rtol=10 * tolerance, atol=tolerance)


def drawn(images=3, classes=3, seed=0, count=12, sides=(8, 4, 2)):
    random = np.random.default_rng(seed)
    maps = [random.normal(size=(images, 64 + classes, side, side)) for side in sides]
    boxes = np.concatenate(
        [random.uniform(0.1, 0.9, (count, 2)), random.uniform(0.05, 0.9, (count, 2))], axis=1
    )
    image = np.sort(random.integers(0, images, count))
    return maps, Targets(image, random.integers(0, classes, count), boxes.astype(np.float32))


@pytest.mark.parametrize("objects_at", [0, 1])
def test_objectless_image_weighs_in_a_piece_as_in_the_batch(objects_at):
    maps, targets = drawn(images=2)
    targets = targets._replace(image_index=np.full(12, objects_at))
    loss, whole = make_loss(STRIDES, 3), WholeBatch(2, targets)
    _, gradients = cost_of(loss, maps, targets)
    for piece in range(2):
        raw = [x[piece : piece + 1] for x in maps]
        _, (first, *_) = cost_of(loss, raw, targets.between(piece, piece + 1), whole)
        found = np.linalg.norm(first)
        wanted = np.linalg.norm(gradients[0][piece])
        whole.done += 1
        if piece < objects_at:  # before any object is known each counts as 1: measured 0.2
            assert 0.1 < found / wanted < 10
        else:
            assert found == pytest.approx(wanted, rel=1e-9)


def test_images_without_cells_cost_zero_and_keep_gradients():
    maps = [np.zeros((0, 67, side, side)) for side in (8, 4, 2)]
    terms, gradients = cost_of(make_loss(STRIDES, 3), maps, NO_TARGETS)
    assert all(value == 0 for value in terms.values())
    assert [x.shape for x in gradients] == [x.shape for x in maps]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", FORMS)
def test_non_finite_predictions_give_a_non_finite_loss(form, bad):
    maps, targets = drawn()
    for level in maps:
        level[1] = bad
    terms = arrays_of(FORMS[form](make_loss(STRIDES, 3))([ops.tensor(x) for x in maps], targets))
    assert not np.isfinite(terms["total"])
