"""The mask head: its layers from a YAML, its rows and prototypes, and what is found in an image."""

from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector
from duet.models.graph import parse_model
from duet.models.heads.mask.head import MaskHead, MaskRows
from duet.utils.data.image.letterbox import Letterbox
from duet.utils.data.masks.runs import mask_of_runs
from duet.utils.errors import UserError
from duet.utils.evaluation.coco.metric import MaskResult
from duet.utils.geometry.detections import SuppressionSettings
from tests.coco_reference import boxes_around, evaluate_masks, masked_truth, segmentations
from tests.environments import shared_path
from tests.golden_models import assert_near, drawn_input, drawn_model, info, stored
from tests.small import TINY, TINY_SEGMENTER

SQUARE = Letterbox((64, 64), (64, 64), (0, 0), (64, 64))


def build(head=TINY_SEGMENTER, **changes):
    model = Detector(parse_model({**yaml.safe_load(head), **changes}))
    model.initialize(seed=0)
    return nn.frozen_copy(model)


def run(model, images):
    with autograd.no_grad():
        return model(ops.tensor(images))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("[nc, anchors]", r"accepted args: \[nc, anchors, num_masks, prototype_channels\]"),
        ("[nc, 3.5, 32, 256]", "accepted args"),
        ("[nc, anchors, 0, 256]", "num_masks is 0; accepted: whole numbers from 1 to 1024"),
        ("[nc, anchors, 32, 1000000000]", "prototype_channels is 1000000000; accepted: whole"),
        ("[nc, anchors, 32, x]", "prototype_channels is 'x'; accepted: whole"),
    ],
)
def test_invalid_mask_args_are_refused_before_building(args, message):
    with pytest.raises(UserError, match=message):
        build(TINY.replace("Detect, [nc, anchors]", f"Segment, {args}"), width_multiple=1.0)


def test_rows_above_threshold_equal_decoded_maps():
    case = info("segment")["w0125"]
    model = drawn_model("yolov5n-seg.yaml", case["gain"])
    raw = run(model, drawn_input(case["input"]))
    wanted = stored("segment/model_w0125")
    objectness = wanted["decoded"][..., 4]
    threshold = float(np.quantile(objectness, 0.9))
    found = model.head.decode_above(raw, SuppressionSettings(threshold))
    for image, (rows, prototypes) in enumerate(found):
        above = wanted["decoded"][image][objectness[image] > threshold]
        rows = rows[rows[:, 4] > threshold]
        # As tests/parity/test_public_models.py compares whole networks.
        for columns in (np.s_[:, :4], np.s_[:, 4:10], np.s_[:, 10:]):
            assert_near(rows[columns], above[columns], 2e-5)
        assert_near(prototypes, wanted["proto"][image], 2e-5)
        assert rows.dtype == prototypes.dtype == np.float32


def test_masks_follow_the_boxes_kept_by_nms():
    """With one prototype of ones at each coefficient's own place a mask tells its row."""
    head = build(nc=2).head
    random = np.random.default_rng(0)
    rows = random.random((40, 13), dtype=np.float32)
    rows[:, :4] = 32, 32, 60, 60
    rows[:, 4] = np.linspace(0.3, 0.9, 40)
    rows[:, 7:] = -1
    rows[np.arange(40), 7 + np.arange(40) % 6] = 1
    prototypes = np.zeros((6, 16, 16), np.float32)
    for index in range(6):
        prototypes[index, 2 * index : 2 * index + 2] = 20
    settings = SuppressionSettings(iou_threshold=1.0, max_detections=8, multi_label=False)
    found = head.finish(MaskRows(rows, prototypes), SQUARE, settings)
    assert len(found.scores) == found.masks.num_rows == 8
    best = rows[:, 5:7].max(axis=1) * rows[:, 4]
    for score, runs in zip(found.scores, found.masks.rows(), strict=True):
        index = int(np.abs(best - score).argmin()) % 6
        mask = mask_of_runs(runs, (64, 64))
        centre = slice(8 * index + 2, 8 * index + 6)
        assert mask[centre, 4:60].all()
        assert not mask[(np.arange(64) < 8 * index - 4) | (np.arange(64) >= 8 * index + 12)].any()


def test_empty_result_has_the_form_of_a_full_one():
    head = build(nc=1).head
    nothing = MaskRows(np.zeros((0, 12), np.float32), np.zeros((6, 16, 16), np.float32))
    found = head.finish(nothing, SQUARE, SuppressionSettings())
    for array, wanted in zip(found[:3], MaskHead.nothing_found[:3], strict=True):
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
    for array, wanted in zip(found.masks, MaskHead.nothing_found.masks, strict=True):
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)


def test_best_class_rows_keep_score_and_coefficients():
    head = build(nc=3).head
    rows = np.arange(28, dtype=np.float32).reshape(2, 14)
    prototypes = np.zeros((6, 4, 4), np.float32)
    found = head.of_best_class(MaskRows(rows, prototypes))
    np.testing.assert_array_equal(found.rows, rows[:, [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13]])
    assert found.prototypes is prototypes


WHOLE, OTHER = np.zeros((2, 40, 60), bool)
WHOLE[10:30, 10:30] = True
OTHER[5:15, 40:50] = True
HALF = WHOLE & (np.arange(60) < 20)


@pytest.fixture(scope="module")
def result():
    """Class 0: its box is right, its mask half of the object; class 2: nothing is found."""
    found = segmentations([HALF], [0.9], [0], boxes_around([WHOLE]))
    return evaluate_masks({0: (found, masked_truth([WHOLE, OTHER], [0, 2]))}, 3)


def test_metrics_list_boxes_then_masks(result):
    figures = MaskHead.metrics(result)
    assert list(figures) == list(MaskHead.metric_names)
    # Of two classes one is found: its box at all ten thresholds, its mask at the first of them.
    assert list(figures.values()) == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.05])


def test_mask_fitness_adds_boxes_and_masks(result):
    assert MaskHead.fitness(result) == pytest.approx(0.5 + 0.1 * 0.5 + 0.9 * 0.05)
    with np.load(shared_path("golden/segment/mask_metric.npz")) as stored:
        for row, fitness in zip(stored["fitness_in"], stored["fitness_out"], strict=True):
            of = [SimpleNamespace(means=tuple(row[at : at + 4])) for at in (0, 4)]
            assert MaskHead.fitness(MaskResult(*of)) == pytest.approx(fitness, abs=1e-9)


def test_class_score_is_the_mean_of_boxes_and_masks(result):
    # A class without objects has the mean of the others: 0.5 of boxes, 0.05 of masks.
    assert MaskHead.class_scores(result) == pytest.approx(((1 + 0.1) / 2, 0.55 / 2, 0))
