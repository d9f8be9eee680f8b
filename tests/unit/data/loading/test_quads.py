"""Four images joined into one, against stored results of the public collation."""

import numpy as np
import pytest

from duet.utils.data.loading.batch import TargetMasks, Targets
from duet.utils.data.loading.quads import draw_enlarged, join_quads
from tests.shared_files import shared_path


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


def test_half_of_the_groups_are_enlarged_by_seed_epoch_and_first_image():
    firsts = np.arange(1000)
    drawn = draw_enlarged(1, 2, firsts)
    assert abs(int(drawn.sum()) - 500) < 80  # five standard deviations of 15.8
    np.testing.assert_array_equal(draw_enlarged(1, 2, firsts[::-1]), drawn[::-1])
    others = [draw_enlarged(*key, firsts).tolist() for key in ((0, 2), (1, 1))]
    assert drawn.tolist() not in others and others[0] != others[1]
    assert draw_enlarged(1, 2, firsts[:0]).shape == (0,)


@pytest.mark.parametrize("shared", [True, False], ids=["a map an image", "a map an object"])
def test_masks_go_with_their_images(shared):
    """Four images 2x3 of one group, whose objects are single pixels, two in the first image."""
    places = [(0, 0, 1), (0, 1, 2), (2, 1, 0), (3, 0, 0)]  # image, row, column
    image_index, rows, columns = np.array(places).T
    map_index = image_index if shared else np.arange(4)
    value = np.array([1, 2, 1, 1]) if shared else np.ones(4, np.int64)
    maps = np.zeros((4, 2, 3), np.uint8)
    maps[map_index, rows, columns] = value
    targets = Targets(
        image_index, np.arange(4), np.zeros((4, 4), "f"), TargetMasks(maps, map_index, value)
    )
    found = []
    for enlarged in (False, True):
        images = np.zeros((1, 3, 16, 24), np.uint8)
        singles = np.zeros((4, 3, 8, 12), np.uint8)
        joined = join_quads(singles, targets, np.array([enlarged]), images)
        masks = joined.masks
        assert (masks.maps.shape[1:], masks.maps.dtype) == ((4, 6), np.uint8)
        assert (np.diff(masks.map_index) >= 0).all()
        chosen = zip(masks.map_index, masks.value, strict=True)
        found.append([np.argwhere(masks.maps[m] == v).tolist() for m, v in chosen])
    # The second image lies below the first, the third at its right, the fourth below that.
    assert found[0] == [[[0, 1]], [[1, 2]], [[1, 3]], [[2, 3]]]
    assert found[1] == [
        [[0, 2], [0, 3], [1, 2], [1, 3]],
        [[2, 4], [2, 5], [3, 4], [3, 5]],
    ]
