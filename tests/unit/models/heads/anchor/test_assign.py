"""Which anchors and cells a target is matched with."""

import json

import numpy as np
import pytest

from duet.models.heads.anchor.assign import assign_targets
from duet.utils.data.loading.batch import Targets
from tests.environments import shared_path

ANCHORS = np.array([[[2.0, 4.0], [8.0, 8.0]]])  # one level, in cells
GRID = 32, 32


def assign(boxes_in_cells, max_side_ratio=4.0, anchors=ANCHORS):
    boxes = np.array(boxes_in_cells, np.float32) / 32
    nothing = np.zeros(len(boxes), np.int64)
    targets = Targets(nothing, nothing, boxes)
    (found,) = assign_targets(targets, anchors, [GRID], max_side_ratio)
    return found


def cells_along(x, size):
    """The own cell along an axis, and which neighbours the plain rule adds, one after the other."""
    near, far = x % 1 < 0.5 and x > 1, (size - x) % 1 < 0.5 and size - x > 1
    return [np.clip(int(x + shift), 0, size - 1) for shift in (0, -0.5, 0.5)], (near, far)


def test_assigned_cells_match_the_plain_rule_in_order():
    random = np.random.default_rng(0)
    centres = random.integers(0, 4 * 32 + 1, (300, 2)) / 4  # many on lines and edges
    boxes = np.concatenate([centres, random.uniform(0.5, 20, (300, 2))], axis=1)
    wanted = []
    for target, (x, y, *sides) in enumerate(boxes.astype(np.float32).tolist()):
        (column, left, right), (at_left, at_right) = cells_along(x, 32)
        (row, above, below), (at_top, at_bottom) = cells_along(y, 32)
        cells = [(row, column, True), (row, left, at_left), (above, column, at_top),
                 (row, right, at_right), (below, column, at_bottom)]  # fmt: skip
        for anchor, wh in enumerate(ANCHORS[0]):
            if np.maximum(sides / wh, wh / sides).max() < 4:
                wanted += [(i, anchor, target, *c[:2]) for i, c in enumerate(cells) if c[2]]
    found = assign(boxes)
    fields = found.anchor_index, found.target_index, found.row, found.column
    assert list(zip(*(x.tolist() for x in fields), strict=True)) == [x[1:] for x in sorted(wanted)]


def test_anchor_threshold_excludes_its_exact_limit():
    """Of BCCD's boxes some are exactly 4 or 8 times an anchor; its stored count has none of them.

    Anchors above the threshold is the mean number of anchors within it of a box, in pixels of the
    network's input.
    """
    metrics = json.loads(shared_path("golden/recipe/info.json").read_text())
    sizes = bccd_sizes() * np.float32([320, 240])  # 640 x 480 images at 320
    at_the_limit = 0
    for case in metrics["anchor_metric_bccd_train"]:
        if case["anchor_scale"] != 1.0 or case["img"] != 320:
            continue
        anchors = np.array([case["anchors_px"]])
        boxes = np.concatenate([np.full_like(sizes, 16.5), sizes], axis=1)
        found = assign(boxes, case["thr"], anchors)
        assert len(found.row) / len(sizes) == pytest.approx(case["anchors_above_threshold"])
        more = assign(boxes, case["thr"] * (1 + 1e-6), anchors)
        at_the_limit += len(more.row) - len(found.row)
    assert at_the_limit > 100


def bccd_sizes():
    """Width and height of the objects of BCCD's training images, fractions, (M, 2) float32."""
    files = sorted(shared_path("data/bccd/labels/train").glob("*.txt"))
    rows = [np.loadtxt(path, np.float32, ndmin=2) for path in files]
    return np.concatenate([labels[:, 3:] for labels in rows if labels.size])
