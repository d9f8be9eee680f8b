"""A task is a head: graph, detector and training know heads by what `base.py` says alone."""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import yaml

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector
from duet.models.graph import parse_model
from duet.models.heads.anchor.boxes import complete_iou
from duet.models.heads.anchor.head import AnchorHead
from duet.models.heads.base import Head
from duet.models.training.outputs import columns_of
from duet.models.training.step_watch import StageTimer
from duet.utils.data.image.letterbox import Letterbox
from duet.utils.data.loading.batch import Targets
from duet.utils.data.sources.samples import Sample
from duet.utils.errors import UserError
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.geometry.detections import GroundTruth
from tests import presence_head
from tests.golden_models import arrays_of, loss_settings
from tests.presence_head import PresenceHead
from tests.small import RESULT_COLUMNS, TINY

TARGETS = Targets(
    np.array([0, 1, 1]),
    np.array([2, 0, 4]),
    np.array([[0.3, 0.6, 0.2, 0.3], [0.7, 0.2, 0.9, 0.8], [0.5, 0.5, 0.3, 0.2]], np.float32),
)
YAMLS = {AnchorHead: TINY, PresenceHead: presence_head.YAML}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    presence_head.register(monkeypatch)


def build(kind, **changes):
    model = Detector(parse_model({**yaml.safe_load(YAMLS[kind]), **changes}))
    model.initialize(seed=0)
    return model


def make_loss(model):
    return model.head.make_loss(loss_settings(64))


def images():
    random = np.random.Generator(np.random.Philox(0))
    return ops.tensor(random.random((2, 3, 64, 64), dtype=np.float32))


@pytest.mark.parametrize("kind", YAMLS)
def test_the_last_layer_is_the_head_that_the_yaml_names(kind):
    model = build(kind, nc=7)
    assert type(model.head) is kind and model.head.num_classes == model.spec.num_classes == 7
    assert model.head.strides == {AnchorHead: (8, 16), PresenceHead: (8,)}[kind]
    assert model.stride == max(model.head.strides)
    head = [name for name, _ in nn.named_parameters(model) if name.startswith(model.head_name)]
    assert head and len(head) == len(list(nn.named_parameters(model.head)))
    assert type(Detector(parse_model(model.spec.document)).head) is kind


def test_only_a_head_with_anchors_asks_for_them():
    document = yaml.safe_load(TINY)
    del document["anchors"]
    with pytest.raises(UserError, match="missing anchors"):
        parse_model(document)
    assert "anchors" not in build(PresenceHead).spec.document


@pytest.mark.parametrize(("kind", "count"), [(AnchorHead, 3), (PresenceHead, 2)])
def test_losses_have_the_names_of_the_head_in_its_order(kind, count):
    model = build(kind)
    model.train()
    terms = autograd.value_and_backward(model, make_loss(model), images(), TARGETS, StageTimer())
    assert list(terms.by_name) == list(kind.loss_names) and len(terms.by_name) == count
    *losses, total = arrays_of(terms).values()
    assert {array.shape for array in losses} == {()}
    assert all(array > 0 for array in losses)
    np.testing.assert_allclose(total, 2 * np.sum(losses), rtol=1e-6)
    gradients = [ops.to_numpy(x.grad) for _, x in nn.named_parameters(model)]
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


@pytest.mark.parametrize("kind", YAMLS)
def test_what_is_found_is_scored_named_and_drawn(kind, tmp_path):
    model = nn.frozen_copy(build(kind))
    assert set(kind.target_fields) <= set(Targets._fields)
    with autograd.no_grad():
        raw = model(images())
    evaluator = model.head.make_evaluator(("a", "b", "c", "d", "e"))
    letterbox = Letterbox((64, 64), (64, 64), (0, 0), (64, 64))
    truth = GroundTruth(np.array([1]), np.array([[8.0, 8.0, 32.0, 32.0]]))
    for index, decoded in enumerate(model.head.decode_above(raw, SuppressionSettings(0.001))):
        found = model.head.finish(decoded, letterbox, SuppressionSettings())
        evaluator.add(index, found, truth)
    result = evaluator.result()
    figures = model.head.metrics(result)
    assert list(figures) == list(kind.metric_names)
    assert 0 <= model.head.fitness(result) <= 1
    report = kind.task.report.load()
    assert all(f"{figure:.4f}" in report.table(result) for figure in figures.values())
    samples = []
    for index in range(2):
        path = tmp_path / f"{index}.png"
        cv2.imwrite(str(path), np.full((64, 64, 3), 99, np.uint8))
        samples.append(Sample(path, 64, 64, truth.class_index, truth.boxes_xyxy / 64))
    (tmp_path / "plots").mkdir()
    report.plot(result, samples, tmp_path / "plots")
    drawn = {
        PresenceHead: {"accuracy.txt"},
        AnchorHead: {"PR_curve.png", "P_curve.png", "R_curve.png", "F1_curve.png",
                     "confusion_matrix.png", "val_batch0_labels.jpg", "val_batch0_pred.jpg"},
    }  # fmt: skip
    assert {path.name for path in (tmp_path / "plots").iterdir()} == drawn[kind]


def test_a_head_that_leaves_something_out_is_not_built():
    class NoLoss(PresenceHead):
        make_loss = Head.make_loss

    with pytest.raises(TypeError, match="make_loss"):
        NoLoss(5, 8, 8)


def test_detection_has_the_public_columns_and_fitness():
    assert tuple(columns_of(AnchorHead)) == RESULT_COLUMNS
    result = SimpleNamespace(means=(0.1, 0.2, 0.5, 0.25))
    assert AnchorHead.metrics(result) == {
        "precision": 0.1, "recall": 0.2, "mAP_0.5": 0.5, "mAP_0.5:0.95": 0.25,
    }  # fmt: skip
    assert AnchorHead.fitness(result) == pytest.approx(0.1 * 0.5 + 0.9 * 0.25)


def test_the_box_loss_is_fused_where_that_is_asked_for():
    head = build(AnchorHead).head
    plain, fast = (head.make_loss(loss_settings(64, {"fused": fused})) for fused in (False, True))
    assert plain.implementations == {"box_iou": "plain"} and plain.box_iou is complete_iou
    assert fast.implementations == {"box_iou": "fast"}
