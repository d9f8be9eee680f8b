"""A batch in pieces gives the maps of the whole one, and takes the memory of a piece."""

import numpy as np
import pytest

from backend import ops
from models.inference.in_pieces import InPieces


class Seen:
    """A model that keeps how many images it gets at a time."""

    head, stride = None, 8
    fixed_size, takes_arrays = None, False

    def __init__(self):
        self.images, self.asked = [], None

    def __call__(self, images):
        self.images.append(images.shape[0])
        return images * 2.0, images[:, :, :1]

    def decode_above(self, raw, confidence_threshold):
        return [raw, confidence_threshold]

    def require_memory(self, shape, trains):
        self.asked = shape, trains


@pytest.mark.parametrize(
    ("images", "at_a_time", "pieces"), [(5, 2, [2, 2, 1]), (4, 4, [4]), (3, 9, [3]), (0, 2, [0])]
)
def test_the_maps_of_the_pieces_are_joined_in_their_order(images, at_a_time, pieces):
    model = Seen()
    given = np.arange(images * 3 * 2 * 2, dtype=np.float32).reshape(images, 3, 2, 2)
    doubled, first_rows = InPieces(model, at_a_time)(ops.tensor(given, "cpu"))
    assert model.images == pieces
    np.testing.assert_array_equal(ops.to_numpy(doubled), 2 * given)
    np.testing.assert_array_equal(ops.to_numpy(first_rows), given[:, :, :1])


def test_the_rest_is_that_of_the_model():
    model = Seen()
    pieces = InPieces(model, 2)
    assert (pieces.head, pieces.stride) == (model.head, model.stride)
    assert pieces.decode_above("raw", 0.5) == ["raw", 0.5]
    pieces.require_memory((16, 3, 64, 64), True)
    assert model.asked == ((2, 3, 64, 64), True)
