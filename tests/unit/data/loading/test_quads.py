"""Four images joined into one, against stored results of the public collation."""

import numpy as np
import pytest

from duet.utils.data.loading.batch import TargetMasks, Targets, join_targets
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


SIZE = (2, 3)


def masked_targets(maps: np.ndarray, map_index: list[int], value: list[int]) -> Targets:
    """Targets of one image, with one object for each value."""
    number = len(value)
    return Targets(
        np.zeros(number, np.int64),
        np.arange(number),
        np.full((number, 4), 0.5, np.float32),
        TargetMasks(maps, np.array(map_index, np.int64), np.array(value, np.int64)),
    )


def pixels(targets: Targets) -> list[list[int]]:
    """The pixels of each object, as places in a flat map."""
    assert targets.masks is not None
    maps, map_index, value = targets.masks
    pairs = zip(map_index.tolist(), value.tolist(), strict=True)
    return [np.flatnonzero(maps[index] == number).tolist() for index, number in pairs]


def map_of(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint8).reshape(1, *SIZE)


SHARED = masked_targets(map_of(1, 1, 0, 2, 0, 0), [0, 0], [2, 1])  # both objects in one map
EMPTY = masked_targets(map_of(0, 0, 0, 0, 0, 0), [], [])
OWN = masked_targets(
    np.concatenate([map_of(1, 1, 1, 0, 0, 0), map_of(0, 0, 1, 1, 0, 0)]), [0, 1], [1, 1]
)


def test_objects_keep_their_pixels_in_a_batch():
    batch = join_targets([SHARED, EMPTY, SHARED])
    assert batch.image_index.tolist() == [0, 0, 2, 2]
    assert pixels(batch) == [[3], [0, 1], [3], [0, 1]]
    assert batch.masks is not None and len(batch.masks.maps) == 3


def test_a_piece_has_the_objects_and_maps_of_its_images():
    for batch in (join_targets([SHARED, EMPTY, OWN]), join_targets([OWN, EMPTY, SHARED])):
        whole = pixels(batch)
        pieces = [batch.between(0, 1), batch.between(1, 2), batch.between(2, 3)]
        assert [found for piece in pieces for found in pixels(piece)] == whole
        assert [piece.image_index.tolist() for piece in pieces] == [[0, 0], [], [0, 0]]
        for piece in (pieces[0], pieces[2]):
            assert piece.masks is not None and len(piece.masks.maps) <= 2


def test_no_images_have_no_masks():
    assert join_targets([]).masks is None
    assert [array.shape for array in join_targets([]).arrays()] == [(0,), (0,), (0, 4)]
