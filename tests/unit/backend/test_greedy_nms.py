"""backend/greedy_nms.py in small blocks, stages and packings against the rule told box by box."""

import numpy as np
import pytest

from backend import greedy_nms
from utils.boxes import pairwise_iou


def kept_one_by_one(boxes_xyxy, group, iou_threshold, max_kept):
    """The greedy rule, a box at a time."""
    overlaps = pairwise_iou(boxes_xyxy, boxes_xyxy) > iou_threshold
    overlaps &= group[:, None] == group
    kept = []
    for row in range(len(boxes_xyxy)):
        if len(kept) < max_kept and not overlaps[row, kept].any():
            kept.append(row)
    return np.array(kept, np.int64)


@pytest.mark.parametrize("num_groups", [1, 3])
@pytest.mark.parametrize(("block", "stage", "purges"), [(192, 4096, 16), (3, 11, 2), (8, 8, 1)])
def test_blocks_and_stages_change_nothing(monkeypatch, num_groups, block, stage, purges):
    monkeypatch.setattr(greedy_nms, "BLOCK", block)
    monkeypatch.setattr(greedy_nms, "STAGE", stage)
    monkeypatch.setattr(greedy_nms, "PURGES_A_PACKING", purges)
    random = np.random.Generator(np.random.Philox(1))
    for count in (0, 1, 7, 60, 150):
        # On a grid of whole pixels boxes coincide, touch, lack area and meet thresholds exactly.
        corner = random.integers(-6, 6, (count, 2))
        size = random.integers(0, 7, (count, 2))
        boxes_xyxy = np.concatenate((corner, corner + size), axis=1).astype(np.float32)
        group = random.integers(0, num_groups, count) * 1000 - 1
        for threshold in (0.0, 0.25, 0.5, 1.0):
            for max_kept in (1, 5, 1000):
                np.testing.assert_array_equal(
                    greedy_nms.suppress_greedily(boxes_xyxy, group, threshold, max_kept),
                    kept_one_by_one(boxes_xyxy, group, threshold, max_kept),
                )
