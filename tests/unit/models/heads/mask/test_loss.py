"""Masks against what the public YOLOv5 computed of the same predictions, and by arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from duet.backend import autograd, ops
from duet.models.heads.anchor.assign import assign_targets
from duet.models.heads.anchor.head import anchors_in_cells
from duet.models.heads.mask import loss as mask_loss
from duet.models.heads.mask.loss import SegmentationLoss, cost_of_masks, mask_positives, pieces_of
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.data.loading.batch import TargetMasks, Targets
from duet.utils.data.masks.raster import index_map, separate
from duet.utils.geometry.boxes import Polygons
from tests.golden_models import assert_near, cost_of, stored

LEVELS = range(3)
ANCHORS = anchors_in_cells(
    ((10, 13, 16, 30, 33, 23), (30, 61, 62, 45, 59, 119), (116, 90, 156, 198, 373, 326)),
    (8, 16, 32),
)
NO_TARGETS = Targets(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 4), np.float32))
# Sums of some thousand float32 terms in another order.
FLOAT32 = 1e-6
# Of float64 the targets are still float32: boxes on cells, and what is stored.
TARGETS_FLOAT32 = 1e-7


def make_loss(**changes):
    """The loss whose hyper-parameters golden/segment/info.json tells: of images of 224 px."""
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    gains = hyp.loss_gains().scaled(num_levels=3, num_classes=5, image_size=224)
    return SegmentationLoss(ANCHORS, 5, gains, **changes)


def raw_arrays(dtype="float64"):
    """Raw maps of two images at each level, and prototypes."""
    model = stored("segment/model_w0125")
    names = *(f"train_raw{level}" for level in LEVELS), "train_proto"
    return [model[name].astype(dtype) for name in names]


def targets_of(rows, maps, is_separate=False):
    image_index = rows[:, 0].astype(np.int64)
    before = np.array([(image_index[:t] == image).sum() for t, image in enumerate(image_index)])
    masks = TargetMasks(maps, image_index, before + 1)
    if is_separate:
        masks = TargetMasks(maps, np.arange(len(rows)), np.ones(len(rows), np.int64))
    return Targets(image_index, rows[:, 1].astype(np.int64), rows[:, 2:], masks)


def encoded(name):
    arrays = stored("segment/loss_targets")
    rows, maps = arrays[f"targets_{name}"], arrays[f"masks_{name}"]
    return targets_of(rows, maps, name == "separate")


@pytest.mark.parametrize("name", ["overlap", "separate"])
@pytest.mark.parametrize(
    ("dtype", "key", "tolerance"),
    [("float32", "fp32", FLOAT32), ("float64", "fp64", TARGETS_FLOAT32)],
)
def test_loss_and_gradients_match_stored_values(name, dtype, key, tolerance):
    wanted = stored("segment/loss")
    terms, gradients = cost_of(make_loss(), raw_arrays(dtype), encoded(name))
    assert list(terms) == ["box", "mask", "objectness", "classification", "total"]
    items, total = wanted[f"{name}_{key}_items_box_seg_obj_cls"], wanted[f"{name}_{key}_loss"]
    np.testing.assert_allclose([*terms.values()], [*items, *total], rtol=tolerance)
    for gradient, part in zip(gradients, ("gp0", "gp1", "gp2", "gproto"), strict=True):
        assert_near(gradient, wanted[f"{name}_fp32_{part}"], FLOAT32)
    if key == "fp64":
        norms = [np.linalg.norm(gradient) for gradient in gradients]
        np.testing.assert_allclose(norms, wanted[f"{name}_fp64_grad_norms"], rtol=tolerance)


@pytest.mark.parametrize("ratio", [1, 2])
def test_masks_of_another_size_are_resized_to_prototypes(ratio):
    wanted = stored("segment/loss")
    rows = wanted[f"overlap_ratio{ratio}_targets"]
    terms, _ = cost_of(
        make_loss(), raw_arrays(), targets_of(rows, wanted[f"overlap_ratio{ratio}_masks"])
    )
    expected = [*wanted[f"overlap_ratio{ratio}_items"], *wanted[f"overlap_ratio{ratio}_loss"]]
    np.testing.assert_allclose([*terms.values()], expected, rtol=FLOAT32)


def test_images_without_objects_have_only_objectness_loss():
    wanted = stored("segment/loss")
    terms, gradients = cost_of(make_loss(), raw_arrays(), NO_TARGETS)
    expected = [*wanted["empty_items"], *wanted["empty_loss"]]
    np.testing.assert_allclose([*terms.values()], expected, rtol=FLOAT32)
    assert not gradients[-1].any() and gradients[-1].shape == (2, 32, 40, 56)


def random_batch(images=2, objects=4, masks=3, seed=0):
    """Small raw maps of two classes and targets with maps of 8 x 12, twice as fine as a level."""
    generator = np.random.default_rng(seed)
    shapes = [(images, 3, 4 // s, 8 // s, 7 + masks) for s in (1, 2, 4)]
    raw = [generator.normal(size=shape) for shape in [*shapes, (images, masks, 8, 12)]]
    image_index = np.sort(generator.integers(0, images, objects))
    boxes = generator.uniform(0.3, 0.7, (objects, 4)).astype(np.float32)
    maps = generator.integers(0, objects + 1, (images, 8, 12)).astype(np.uint8)
    masks = TargetMasks(maps, image_index, np.arange(objects) + 1)
    return raw, Targets(image_index, generator.integers(0, 2, objects), boxes, masks)


def small_loss():
    """Of anchors of 2 to 8 cells at the finest level, which match the boxes of `random_batch`."""
    anchors = np.array(
        [[[2, 2], [3, 5], [6, 3]], [[1, 2], [3, 2], [2, 3]], [[1, 1], [2, 1], [1, 2]]]
    )
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    return SegmentationLoss(anchors.astype(np.float32), 2, hyp.loss_gains().scaled(3, 2, 64))


def loss_of_any_side():
    wide = small_loss()
    wide.gains = replace(wide.gains, max_side_ratio=100.0)
    return wide


def test_over_255_objects_cost_the_same_as_separate_maps():
    """Each of 256 objects is a pixel of an image of 16 x 16."""
    places = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), -1).reshape(-1, 2)
    outlines, none = Polygons(places, np.arange(257)), np.zeros(256, np.int64)
    numbers, value = index_map(outlines, (16, 16), 1)
    boxes = np.concatenate([places + 0.5, np.ones((256, 2))], 1).astype(np.float32) / 16
    raw, _ = random_batch(images=1)
    raw[-1] = np.random.default_rng(1).normal(size=(1, 3, 16, 16))
    own_maps = TargetMasks(separate(outlines, (16, 16), 1), np.arange(256), none + 1)
    (terms, gradients), (expected, wanted) = (
        cost_of(loss_of_any_side(), raw, Targets(none, none, boxes, masks))
        for masks in (TargetMasks(numbers[None], none, value), own_maps)
    )
    assert terms == expected and terms["mask"] > 0
    for found, other in zip(gradients, wanted, strict=True):
        np.testing.assert_array_equal(found, other)


def test_box_covering_no_cell_centre_has_no_mask_gradient():
    raw, targets = random_batch(images=1, objects=1)
    narrow = targets._replace(boxes_cxcywh_norm=np.array([[0.55, 0.5, 0.05, 0.5]], np.float32))
    terms, gradients = cost_of(loss_of_any_side(), raw, narrow)  # columns 6.3 to 6.9 of 12
    assert float(terms["mask"]) == 0 and not gradients[-1].any()
    assert float(terms["box"]) > 0


@pytest.mark.parametrize("most", [2**23, 200])
def test_grouped_mask_loss_equals_single_objects(monkeypatch, most):
    monkeypatch.setattr(mask_loss, "MOST_NUMBERS", most)
    raw, targets = random_batch(images=3, objects=12)
    *levels, prototypes = raw
    assignments = assign_targets(
        targets, small_loss().anchors, [level.shape[2:4] for level in levels], 4.0
    )
    coefficients = np.random.default_rng(2).normal(
        size=(sum(len(level.row) for level in assignments), prototypes.shape[1])
    )
    positives = mask_positives(assignments, targets, prototypes.shape[2:])
    results, counts = [], []
    for device in ("cpu", "cuda:0"):
        pieces = list(pieces_of(positives, prototypes.shape[2:], device))
        inputs = [autograd.variable(coefficients), autograd.variable(prototypes)]
        value = cost_of_masks(*inputs, targets, positives, pieces)
        gradients = autograd.gradients(value, inputs)
        results.append([ops.to_numpy(x) for x in (value, *gradients)])
        counts.append(len(pieces))
    assert counts[0] == 12 and (counts[1] <= 2 or most == 200)  # on a GPU one per size of patch
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
