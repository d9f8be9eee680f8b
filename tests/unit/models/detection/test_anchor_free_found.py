"""What an anchor-free model finds, alone and with others, in tiles, on tracks and in the hub."""

import numpy as np
import pytest

from duet import load
from tests.tiny_tasks import write_tiny_free_weights
from tests.tiny_weights import noise, write_tiny_weights

IMAGE = noise(64, 96)
SIZE = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def free(folder):
    return write_tiny_free_weights(folder)


@pytest.fixture(scope="module")
def anchored(folder):
    return write_tiny_weights(folder)


def boxes_of(result):
    return np.column_stack([result.boxes_xyxy, result.scores, result.class_index])


def as_set(result):
    return {tuple(np.round(row.astype(float), 3).tolist()) for row in boxes_of(result)}


def test_two_models_of_both_kinds_find_what_each_finds_before_nms(free, anchored):
    options = {"size": SIZE, "iou": 1.0, "max_det": 10_000}
    alone = [as_set(load(path, device="cpu")(IMAGE, **options)[0]) for path in (free, anchored)]
    for pair in ((free, anchored), (anchored, free)):
        (both,) = load(pair, device="cpu")(IMAGE, **options)
        assert as_set(both) == alone[0] | alone[1]


def test_several_views_tiles_and_tracks_find_objects(free):
    detector = load(free, device="cpu")
    for options in ({"augment": True}, {"tile": 64}):
        (result,) = detector(IMAGE, size=SIZE, **options)
        assert len(result) > 3
    *_, second, third = detector.stream([IMAGE] * 4, track=True, size=SIZE)
    numbers = [set(result.track_ids.tolist()) - {-1} for result in (second, third)]
    assert numbers[0] and numbers[0] == numbers[1]
