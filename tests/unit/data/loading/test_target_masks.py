"""Targets with masks: joined into those of a batch, and cut into pieces again."""

import numpy as np

from utils.data.loading.batch import TargetMasks, Targets, join_targets

SIZE = (2, 3)


def targets_of(maps: np.ndarray, map_index: list[int], value: list[int]) -> Targets:
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


SHARED = targets_of(map_of(1, 1, 0, 2, 0, 0), [0, 0], [2, 1])  # both objects in one map
EMPTY = targets_of(map_of(0, 0, 0, 0, 0, 0), [], [])
OWN = targets_of(
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
