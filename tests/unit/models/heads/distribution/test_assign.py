"""The task-aligned assignment against assignments stored from the public package.

A stored position of score 0 was filled in by the sort of that machine; it adds nothing to a loss,
and here it is no positive. Scores: the sixth power of an overlap amplifies the rounding of float32
six times; the stored float32 ones are up to 1e-5 from those of float64.
"""

import numpy as np
import pytest

from duet.backend import ops
from duet.models.heads.anchor.boxes import complete_iou
from duet.models.heads.distribution.assign import assign_cells, find_candidates, list_pairs
from duet.utils.data.loading.batch import Targets
from tests.golden_models import info, stored

CASES = ("normal_nc80", "normal_nc3", "p6_nc3", "one_image_empty", "one", "overlapping", "many",
         "tiny", "outside", "duplicates", "ties_symmetric", "no_overlap", "few_overlap",
         "scores_0_and_1", "perfect", "few_positions")  # fmt: skip
TOLERANCES = {"fp32": 1e-5, "fp64": 1e-7}


def case_of(name, dtype):
    case, arrays = (
        info("anchor_free/assigner")["cases"][name],
        stored("anchor_free/assigner/inputs"),
    )
    given = {
        key: arrays[f"{name}_{key}"]
        for key in ("pd_scores", "pd_boxes", "gt_labels", "gt_boxes", "gt_mask")
    }
    there = given["gt_mask"].reshape(given["gt_boxes"].shape[:2]) > 0
    image, index = np.nonzero(there)
    height, width = case["image_hw"]
    boxes = given["gt_boxes"][there].astype(np.float64)
    centre_size = np.concatenate(
        [(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1
    )
    labels = given["gt_labels"].reshape(there.shape)[there].astype(np.int64)
    targets = Targets(image, labels, centre_size / np.array([width, height] * 2))
    grids = [(height // stride, width // stride) for stride in case["strides"]]
    return case, given, targets, grids, index, dtype


def assigned(name, precision, padded=False):
    """(B, N) object index and (B, N) score of each cell, 0 for none."""
    dtype = {"fp32": "float32", "fp64": "float64"}[precision]
    case, given, targets, grids, index, _ = case_of(name, dtype)
    found = find_candidates(targets, grids, case["strides"], dtype, padded)
    images, cells, classes = given["pd_scores"].shape
    indices, scores = np.zeros((2, images * cells))
    if found.num_pairs:
        boxes = given["pd_boxes"].reshape(-1, 4).astype(dtype)
        centre_size = np.concatenate(
            [(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1
        )
        probable = given["pd_scores"].reshape(-1, classes).astype(np.float64)
        with np.errstate(divide="ignore"):
            logits = np.log(probable) - np.log1p(-probable)
        rows = np.pad(np.clip(logits, -1e4, 1e4), ((0, 0), (64, 0))).astype(dtype)
        result = assign_cells(found, ops.tensor(centre_size), ops.tensor(rows), complete_iou)
        cell, chosen, score = map(ops.to_numpy, result)
        counts = score > 0
        assert len(set(cell[counts].tolist())) == counts.sum()  # each cell counts once
        indices[cell[counts]], scores[cell[counts]] = index[chosen[counts]], score[counts]
    shape = images, cells
    return indices.reshape(shape).astype(int), scores.reshape(shape)


def expected(name, precision):
    arrays = stored("anchor_free/assigner/outputs")
    scores = arrays[f"{name}_{precision}_scores"]
    return arrays[f"{name}_{precision}_gt_index"], scores.max(2) if scores.size else scores.sum(2)


def assert_as_stored(name, precision, padded):
    index, scores = assigned(name, precision, padded)
    wanted_index, wanted = expected(name, precision)
    # Scores at the edge of what the precision can tell from 0 decide nothing.
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=TOLERANCES[precision])
    counts = wanted > TOLERANCES[precision]
    np.testing.assert_array_equal(index[counts], wanted_index[counts])


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
def test_assignment_matches_stored_values(name, precision, padded):
    assert_as_stored(name, precision, padded)


@pytest.mark.parametrize("name", ["none", "padding_only"])
def test_targets_without_objects_give_no_candidates(name):
    case, _, targets, grids, _, _ = case_of(name, "float32")
    assert not find_candidates(targets, grids, case["strides"], "float32").num_pairs


def test_pair_indices_are_exact_beyond_float32():
    number, grid = 2**14 + 1, (32, 32)  # each object has all cells: 2**24 and a few pairs
    none, boxes = np.zeros(number, np.int64), np.array([[0.5, 0.5, 1, 1]], np.float32)
    targets = Targets(none, none, boxes.repeat(number, axis=0))
    found = find_candidates(targets, [grid], [8], "float32", padded=True)
    (last,) = found.rectangles[-1:] * [1, 0, 1, 1, 1, 1]  # as if it came first
    added = found._replace(counts=found.counts[-1:], rectangles=last[None])
    cells = ops.to_numpy(list_pairs(added, "cpu").cell)
    assert len(cells) == found.counts[-1] > 0
    np.testing.assert_array_equal(cells, np.arange(len(cells)) % 1024)


def test_ties_keep_ten_candidates_with_the_top_score():
    _, scores = assigned("ties_all_equal", "fp64")
    wanted = expected("ties_all_equal", "fp64")[1]
    assert (scores > 0).sum() == (wanted > 0).sum() == 10
    np.testing.assert_allclose(scores[scores > 0], wanted[wanted > 0], rtol=0, atol=1e-7)
