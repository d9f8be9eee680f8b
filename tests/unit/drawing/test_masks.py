"""Masks on an image."""

import numpy as np
import pytest

from tests.shared_files import shared_path
from utils.drawing.annotate import draw_masks
from utils.drawing.colours import class_colour
from utils.masks.runs import runs_of_mask
from utils.ragged import Ragged

GREY = 100


def drawn(masks, class_index):
    """A grey image with masks (K, H, W) drawn on it."""
    image = np.full((*masks.shape[1:], 3), GREY, np.uint8)
    runs = Ragged.of([runs_of_mask(mask) for mask in masks], np.uint32)
    draw_masks(image, runs, np.array(class_index, np.int64))
    return image


def tint(index):
    return np.rint((GREY + np.array(class_colour(index))) / 2).astype(int).tolist()


def test_an_object_has_a_tint_and_a_line_around_it():
    masks = np.zeros((1, 30, 40), bool)
    masks[0, 5:20, 10:30] = True
    image = drawn(masks, [3])
    inside = np.zeros((30, 40), bool)
    inside[6:19, 11:29] = True
    assert (image[inside] == tint(3)).all()
    assert (image[masks[0] & ~inside] == class_colour(3)).all()
    assert (image[~masks[0]] == GREY).all()


def test_the_first_of_several_shows_and_the_image_through_it():
    masks = np.zeros((3, 30, 40), bool)
    masks[0, 5:20, 5:20] = masks[1, 10:28, 10:30] = masks[2] = True
    image = drawn(masks, [7, 1, 2])
    assert [image[15, 15].tolist(), image[25, 20].tolist(), image[2, 35].tolist()] == [
        tint(7), tint(1), tint(2)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["640x480_of_427x640", "640x640_of_1080x810"])
def test_the_drawn_pixels_are_those_of_the_stored_masks(name):
    stored = np.load(shared_path(f"golden/segment/assemble_{name}.npz"))
    shape = tuple(stored["native_shape"])
    masks = np.unpackbits(stored["native"])[: np.prod(shape)].reshape(shape).astype(bool)
    image = drawn(masks, np.arange(len(masks)))
    np.testing.assert_array_equal((image != GREY).any(axis=2), masks.any(axis=0))
