"""What an anchor-free model finds, alone and with others, in tiles, on tracks and in the hub."""

import numpy as np
import pytest

import hubconf
from duet import load
from duet.models.inference.predictor import make_predictor
from duet.models.inference.predictors import Augmented, OneClass
from duet.utils.errors import UserError
from duet.utils.weights.load import load_weights
from tests.tiny_tasks import write_tiny_free_weights, write_tiny_segmenter
from tests.tiny_weights import CLASS_NAMES, noise, write_tiny_weights

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


def test_results_have_boxes_names_and_scores(free):
    (result,) = load(free, device="cpu")(IMAGE, size=SIZE)
    assert len(result) > 3 and (np.diff(result.scores) <= 0).all()
    assert result.scores.min() > 0.25 and result.scores.max() <= 1
    assert set(result.names) <= set(CLASS_NAMES)
    assert (result.boxes_xyxy.max(axis=0) <= (96, 64, 96, 64)).all()


def test_two_models_of_both_kinds_find_what_each_finds_before_nms(free, anchored):
    options = {"size": SIZE, "iou": 1.0, "max_det": 10_000}
    alone = [as_set(load(path, device="cpu")(IMAGE, **options)[0]) for path in (free, anchored)]
    for pair in ((free, anchored), (anchored, free)):
        (both,) = load(pair, device="cpu")(IMAGE, **options)
        assert as_set(both) == alone[0] | alone[1]


def test_a_model_of_masks_is_no_member(folder, free):
    with pytest.raises(UserError, match="cannot be combined with"):
        load([free, write_tiny_segmenter(folder)], device="cpu")


def test_several_views_tiles_and_tracks_find_objects(free):
    detector = load(free, device="cpu")
    for options in ({"augment": True}, {"tile": 64}):
        (result,) = detector(IMAGE, size=SIZE, **options)
        assert len(result) > 3
    *_, second, third = detector.stream([IMAGE] * 4, track=True, size=SIZE)
    numbers = [set(result.track_ids.tolist()) - {-1} for result in (second, third)]
    assert numbers[0] and numbers[0] == numbers[1]


def test_one_class_has_the_best_class_score(free):
    (weights,) = [load_weights(free)]
    model = make_predictor([weights], "cpu")
    assert isinstance(make_predictor([weights], "cpu", augment=True), Augmented)
    rows = np.float32([[8, 8, 4, 4, 1, 0.1, 0.2, 0.7, 0.3, 0.4]])
    np.testing.assert_array_equal(
        OneClass(model).head.of_best_class(rows), rows[:, [0, 1, 2, 3, 4, 7]]
    )


def test_the_hub_gives_what_the_model_finds(free):
    (result,) = load(free, device="cpu")(IMAGE, size=SIZE)
    found = hubconf.custom(str(free), device="cpu")(IMAGE, size=SIZE)
    np.testing.assert_allclose(found.xyxy[0], boxes_of(result), rtol=1e-4, atol=1e-2)
