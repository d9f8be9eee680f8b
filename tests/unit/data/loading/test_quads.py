"""Four images joined into one, against stored results of the public collation."""

import numpy as np
import pytest

from tests.shared_files import shared_path
from utils.data.loading.batch import Targets
from utils.data.loading.quads import draw_enlarged, join_quads


@pytest.fixture(scope="module")
def golden():
    return np.load(shared_path("golden/recipe/quad.npz"))


def targets_of(rows):
    return Targets(rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64), rows[:, 2:].copy())


def join(golden, enlarged):
    images = np.zeros((2, 3, 16, 24), np.uint8)
    found = join_quads(golden["images"], targets_of(golden["targets"]), enlarged, images)
    return images, found


@pytest.mark.parametrize("draw", ["upsampled", "tiled"])
def test_both_draws_give_the_public_images_and_targets(golden, draw):
    images, found = join(golden, np.array([draw == "upsampled"] * 2))
    np.testing.assert_array_equal(images, golden[f"{draw}_images"])
    expected = golden[f"{draw}_targets"]
    rows = np.column_stack(found.arrays())
    # The public order within an image is by column; ours by image. Halves are exact in float32.
    for array in (rows, expected):
        array[:] = array[np.lexsort(array.T[::-1])]
    np.testing.assert_array_equal(rows, expected)
    assert (np.diff(found.image_index) >= 0).all()


def test_each_group_has_a_draw_of_its_own(golden):
    images, found = join(golden, np.array([True, False]))
    np.testing.assert_array_equal(images[0], golden["upsampled_images"][0])
    np.testing.assert_array_equal(images[1], golden["tiled_images"][1])
    assert np.bincount(found.image_index).tolist() == [2, 4]


def test_no_images_give_no_targets():
    nothing = Targets(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 4), np.float32))
    found = join_quads(
        np.zeros((0, 3, 8, 8), np.uint8), nothing, np.zeros(0, bool), np.zeros((0, 3, 16, 16), "u1")
    )
    assert [array.shape for array in found.arrays()] == [(0,), (0,), (0, 4)]


def test_half_of_the_groups_are_enlarged_by_seed_epoch_and_first_image():
    firsts = np.arange(1000)
    drawn = draw_enlarged(1, 2, firsts)
    assert abs(int(drawn.sum()) - 500) < 80  # five standard deviations of 15.8
    np.testing.assert_array_equal(draw_enlarged(1, 2, firsts[::-1]), drawn[::-1])
    others = [draw_enlarged(*key, firsts).tolist() for key in ((0, 2), (1, 1))]
    assert drawn.tolist() not in others and others[0] != others[1]
    assert draw_enlarged(1, 2, firsts[:0]).shape == (0,)
