"""A task is a head; tests/train/test_another_task.py trains one of which no file knows."""

from types import SimpleNamespace

import pytest
import yaml

from duet.models.detector import Detector
from duet.models.graph import parse_model
from duet.models.heads.anchor.boxes import complete_iou
from duet.models.heads.anchor.head import AnchorHead
from duet.models.heads.base import Head
from duet.models.training.outputs import columns_of
from duet.utils.errors import UserError
from tests import presence_head
from tests.golden_models import loss_settings
from tests.presence_head import PresenceHead
from tests.small import RESULT_COLUMNS, TINY


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    presence_head.register(monkeypatch)


def build(text):
    return Detector(parse_model(yaml.safe_load(text)))


def test_only_anchor_heads_require_anchors():
    document = yaml.safe_load(TINY)
    del document["anchors"]
    with pytest.raises(UserError, match="missing anchors"):
        parse_model(document)
    assert "anchors" not in build(presence_head.YAML).spec.document


def test_incomplete_head_cannot_be_built():
    class NoLoss(PresenceHead):
        make_loss = Head.make_loss

    with pytest.raises(TypeError, match="make_loss"):
        NoLoss(5, 8, 8)


def test_detection_has_public_columns_and_fitness():
    assert tuple(columns_of(AnchorHead)) == RESULT_COLUMNS
    result = SimpleNamespace(means=(0.1, 0.2, 0.5, 0.25))
    assert AnchorHead.metrics(result) == {
        "precision": 0.1, "recall": 0.2, "mAP_0.5": 0.5, "mAP_0.5:0.95": 0.25,
    }  # fmt: skip
    assert AnchorHead.fitness(result) == pytest.approx(0.1 * 0.5 + 0.9 * 0.25)


def test_box_loss_is_fused_on_request():
    head = build(TINY).head
    plain, fast = (head.make_loss(loss_settings(64, {"fused": fused})) for fused in (False, True))
    assert plain.implementations == {"box_iou": "plain"} and plain.box_iou is complete_iou
    assert fast.implementations == {"box_iou": "fast"}
