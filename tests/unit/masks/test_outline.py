"""Masks as outlines, against the stored public ones."""

import numpy as np
import pytest

from tests.shared_files import shared_path
from utils.masks.window import largest_outline

INPUTS = ["assemble_640x480_of_427x640", "assemble_640x640_of_1080x810"]


def test_holes_pieces_points_lines_and_nothing_have_the_public_outlines():
    with np.load(shared_path("golden/segment/masks_to_polygons.npz")) as stored:
        for number, mask in enumerate(stored["masks"] > 0):
            found = largest_outline(mask)
            assert found.dtype == np.float32 and found.ndim == 2
            np.testing.assert_array_equal(found, stored[f"largest_{number}"])


@pytest.mark.parametrize("name", INPUTS)
def test_assembled_masks_have_the_public_outlines(name):
    with np.load(shared_path(f"golden/segment/{name}.npz")) as stored:
        for kind, prefix in (("up", "polygon_"), ("native", "polygon_native_")):
            shape = tuple(stored[f"{kind}_shape"])
            masks = np.unpackbits(stored[kind])[: np.prod(shape)].reshape(shape) > 0
            for number, mask in enumerate(masks):
                np.testing.assert_array_equal(largest_outline(mask), stored[f"{prefix}{number}"])


def test_the_piece_of_the_most_points_wins_over_the_one_of_the_largest_area():
    mask = np.zeros((20, 40), bool)
    mask[2:18, 2:18] = True
    mask[8, 22:38] = mask[4:12, 30] = True  # a thin cross
    assert largest_outline(mask)[:, 0].min() == 22


def test_a_transposed_mask_is_read_as_it_is():
    mask = np.zeros((4, 9), bool)
    mask[1, 2:7] = True
    np.testing.assert_array_equal(largest_outline(mask.T.copy().T), largest_outline(mask))
