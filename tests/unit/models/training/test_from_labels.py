"""Which anchors a training takes from its labels, and what it logs of them."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from duet.models.training.from_labels import choose_anchors, with_anchors
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.anchors import measure_fit
from duet.utils.errors import UserError
from tests.environments import shared_path

YOLOV5 = [[10, 13, 16, 30, 33, 23], [30, 61, 62, 45, 59, 119], [116, 90, 156, 198, 373, 326]]
STRIDES = (8, 16, 32)
THIN = np.tile([[300.0, 12.0], [250.0, 9.0], [12.0, 280.0], [40.0, 5.0]], (10, 1))


@pytest.fixture
def choose(caplog):
    """Choose anchors with hyper-parameters; return them and the lines of the log."""
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)

    def run(given, sizes, strides=STRIDES, keeps_head=False, **changes):
        caplog.clear()
        with caplog.at_level("INFO"):
            found = choose_anchors(
                given,
                strides,
                np.asarray(sizes, np.float64),
                dataclasses.replace(hyp, **changes),
                0,
                keeps_head,
            )
        return found, caplog.text

    return run


def pairs(levels):
    return np.reshape(np.array(levels, np.float64), (-1, 2))


def test_anchor_decision_matches_the_public_one_on_bccd(choose):
    sizes = np.load(shared_path("golden/metrics/autoanchor.npz"))["wh_img640"]
    cases = json.loads(shared_path("golden/metrics/autoanchor.json").read_text())["check_anchors"]
    for case in cases:
        anchors, _ = choose(YOLOV5, sizes * case["img"] / 640)
        kept = "good fit" in case["message"][0]
        assert (anchors is YOLOV5) == kept, case["message"]


def test_poorly_fitting_anchors_are_replaced_and_reported(choose):
    anchors, text = choose(YOLOV5, THIN)
    assert measure_fit(THIN, pairs(YOLOV5), 4).best_possible_recall < 0.98
    assert measure_fit(THIN, pairs(anchors), 4).best_possible_recall == 1
    assert np.shape(anchors) == (3, 6)
    areas = pairs(anchors).prod(axis=1)
    assert np.all(np.diff(areas) >= 0)
    assert "fit poorly: best possible recall 0.000" in text
    assert "replaced with fitted ones: best possible recall 1.000" in text
    assert f"{anchors[0][0]:g} x {anchors[0][1]:g}, " in text


def test_anchors_are_kept_when_none_fit_better(choose):
    boxes = [[1.0, 900.0], [0.4, 0.4]]  # beyond a factor of four of anchors from 2 px up
    anchors, text = choose([[2, 900, 2, 900]], boxes, strides=(8,))
    assert anchors == [[2, 900, 2, 900]]
    assert "fit poorly" in text and "found no better ones" in text


def test_larger_anchors_go_to_larger_strides(choose):
    sizes = [[8, 8], [60, 60], [400, 400]]
    anchors, _ = choose(1, sizes, strides=(32, 8, 16))
    assert anchors == [[400, 400], [8, 8], [60, 60]]


def test_anchors_against_stride_order_are_reversed(choose):
    sizes = np.load(shared_path("golden/metrics/autoanchor.npz"))["wh_img640"]
    anchors, text = choose(YOLOV5[::-1], sizes)
    assert anchors == YOLOV5 and "reversed" in text
    assert choose(YOLOV5[::-1], sizes, strides=STRIDES[::-1])[0] == YOLOV5[::-1]


@pytest.mark.parametrize(("asked", "number"), [(3.412, 3), (1.6, 2), (1, 1)])
def test_hyperparameter_requests_a_number_of_new_anchors(choose, asked, number):
    anchors, text = choose(YOLOV5, THIN, anchors=asked)
    assert np.shape(anchors) == (3, 2 * number) and f"fitted {number} per level" in text


def test_anchors_without_labels_are_kept_or_an_error(choose):
    assert choose(YOLOV5, np.zeros((0, 2)))[0] is YOLOV5
    for anchors, changes in ((3, {}), (YOLOV5, {"anchors": 3.0})):
        with pytest.raises(UserError, match="the training images have no labels"):
            choose(anchors, np.zeros((0, 2)), **changes)


def apply_anchors(document, config, hyp):
    return with_anchors(SimpleNamespace(document=document), SimpleNamespace(config=config, hyp=hyp))


@pytest.mark.parametrize(("anchors", "override"), [(3, "lr0=0.01"), (YOLOV5, "anchors=3")])
def test_noautoanchor_conflicts_with_requested_anchors(anchors, override):
    config = parse_train_flags(["--noautoanchor", "--override", override])
    hyp = read_hyperparameters(config.hyp, config.override)
    with pytest.raises(UserError, match="--noautoanchor conflicts with"):
        apply_anchors({"anchors": anchors}, config, hyp)


def test_noautoanchor_keeps_poor_anchors():
    config = parse_train_flags(["--noautoanchor"])
    hyp = read_hyperparameters(config.hyp, config.override)
    document = {"anchors": YOLOV5, "nc": 3}
    assert apply_anchors(document, config, hyp) == document


@pytest.mark.parametrize(("thin", "is_kept"), [(5, True), (20, False)])  # of 100 labels
def test_kept_head_changes_anchors_only_for_many_misfits(choose, thin, is_kept):
    sizes = np.concatenate([np.full((100 - thin, 2), 40.0), np.tile([[300.0, 12.0]], (thin, 1))])
    assert choose(YOLOV5, sizes)[0] is not YOLOV5
    assert (choose(YOLOV5, sizes, keeps_head=True)[0] is YOLOV5) == is_kept
