"""Masks of a file against the model's, at the edges of their boxes."""

from __future__ import annotations

import numpy as np
import pytest

from models.export.compared import TOLERANCES
from models.export.differences import Batch, Verified
from models.export.masks_compared import between_edges, compare_masks
from models.export.matched import Limits
from models.export.trials import Trial
from utils.cli.export_config import parse_export_flags
from utils.runtimes.metadata import MASKS, Metadata

FLAGS = parse_export_flags(["--weights", "a.pt", "--nms"])
IMAGES = np.zeros((1, 3, 64, 96), np.uint8)


def batch(bottom, rows_of_mask):
    """The model's object ends at 55.99996 px, so that its mask has 11 rows of 8 places."""
    box = np.array([9, 9, 42, 55.99996], np.float32)
    row = [*(box[:2] + box[2:]) / 2, *(box[2:] - box[:2]), 0.9, 1, 1]
    outputs = np.array([[row]], np.float32), np.full((1, 1, 16, 24), 5, np.float32)
    masks = np.zeros((1, 16, 24), np.float32)
    masks[0, 3 : 3 + rows_of_mask, 3:11] = 0.99
    found = np.array([[9, 9, 42, bottom, 0.9, 0]], np.float32), masks
    metadata = Metadata(
        class_names=("a",), stride=32, image_size=(64, 96), head="Segment", output=MASKS
    )
    trial = Trial(IMAGES, outputs, False)
    return Batch(trial, [found], metadata, Limits.of(FLAGS), TOLERANCES["float32"])


@pytest.mark.parametrize(
    ("bottom", "rows", "is_right"),
    [
        (55.99996, 11, True),
        (56.000004, 12, True),  # the next row of places begins at 56 px
        (56.000004, 11, True),
        (56.000004, 13, False),
        (56.000004, 10, False),
    ],
)
def test_a_row_between_the_edges_of_two_equal_boxes_may_be_of_one_mask(bottom, rows, is_right):
    result = Verified()
    fault = compare_masks(result, batch(bottom, rows))
    assert (fault == "") is is_right and result.num_matched == 1
    assert is_right or "a mask of 88 cells differs in 8" in fault


def test_places_between_edges_are_those_of_one_box_alone():
    boxes = np.array([[0.5, 0.5, 3.5, 3.5], [1.5, 0.5, 5.5, 3.0]])
    wanted = np.zeros((6, 8), bool)
    wanted[1:4, [1, 4, 5]] = True
    wanted[3, 1:6] = True  # an edge at 3: its last digit decides
    assert np.array_equal(between_edges(boxes, np.ones(4), (6, 8)), wanted)
