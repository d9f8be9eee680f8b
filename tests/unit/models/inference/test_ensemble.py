"""Several models together give the stored predictions; what cannot be joined is refused."""

import numpy as np
import pytest

from backend import autograd, ops
from models.inference.predictors import Augmented, Ensemble
from tests.golden_models import drawn_input, drawn_model, info, stored
from tests.presence_head import PresenceHead
from utils.errors import UserError
from utils.evaluation.nms import SuppressionSettings, non_max_suppression

# As in test_augmented.py: float32 sums of a whole network in another order.
NETWORK_TOLERANCE = 2e-5
NAMES = ("a.pt", "b.pt")


@pytest.fixture(scope="module")
def members():
    """A model of stride 32 and one of stride 64, with different weights."""
    case = info("inference")["ensemble"]
    settings = zip(case["models"], case["gain"], case["name_prefix"], strict=True)
    return [drawn_model(*setting) for setting in settings]


def all_rows(predictor):
    with autograd.no_grad():
        raw = predictor(ops.tensor(drawn_input([2, 3, 192, 256])))
        return np.stack(predictor.decode_above(raw, 0.0))


def assert_near(found, wanted):
    assert found.shape == wanted.shape
    for columns in (np.s_[..., :4], np.s_[..., 4:]):
        largest = np.abs(wanted[columns]).max()
        np.testing.assert_allclose(
            found[columns], wanted[columns], rtol=0, atol=NETWORK_TOLERANCE * largest
        )


def as_rows(found):
    columns = found.scores[:, None], found.class_index[:, None]
    return np.concatenate([found.boxes_xyxy, *columns], axis=1)


def test_rows_of_both_models_are_the_stored_ones_also_after_nms(members):
    rows, wanted = all_rows(Ensemble(members, NAMES)), stored("inference/ensemble")
    assert_near(rows, wanted["merged"])
    options = info("inference")["ensemble"]["nms"]
    for image, boxes in zip(rows, (wanted["nms0"], wanted["nms1"]), strict=True):
        settings = SuppressionSettings(
            options["confidence"], options["iou"],
            max_detections=options["max_det"], multi_label=options["multi_label"],
        )  # fmt: skip
        found = as_rows(non_max_suppression(image, settings))
        np.testing.assert_array_equal(found[:, 5], boxes[:, 5])
        assert_near(found[None, :, :5], boxes[None, :, :5])


def test_augmented_members_give_the_stored_rows(members):
    rows = all_rows(Ensemble([Augmented(member) for member in members], NAMES))
    assert rows.shape[1] == info("inference")["ensemble"]["rows"][1]
    assert_near(rows[:, ::8], stored("inference/ensemble")["merged_augment_every8"])


def test_the_stride_is_one_that_all_members_take():
    class Member:
        head = drawn_model("yolov5n.yaml", 1.8).head
        fixed_size, takes_arrays = None, False

        def __init__(self, stride):
            self.stride = stride

    assert Ensemble([Member(32), Member(64)], NAMES).stride == 64
    assert Ensemble([Member(32), Member(48)], NAMES).stride == 96


def test_members_of_unequally_many_classes_are_refused(members):
    other = drawn_model("yolov5n.yaml", 1.8, classes=1)
    with pytest.raises(UserError, match=r"--weights b.pt: 1 class, a.pt has 5; .* the same number"):
        Ensemble([members[0], other], NAMES)


def test_members_of_other_tasks_are_refused(members):
    class Present:
        head, stride = PresenceHead(5, 8, 8), 8
        fixed_size, takes_arrays = None, False

    with pytest.raises(UserError, match="b.pt: .* to presence cannot .* a.pt, which is to detect"):
        Ensemble([members[0], Present()], NAMES)
    with pytest.raises(
        UserError, match="b.pt: .* to presence cannot .* a.pt, .* to presence; give"
    ):
        Ensemble([Present(), Present()], NAMES)
