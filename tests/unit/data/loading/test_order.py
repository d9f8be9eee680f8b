"""Which samples an epoch shows: by class, by rarity, by aspect ratio; the same in every process."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.loading.batches import TrainBatches, TrainRecipe, draws_of
from duet.utils.data.loading.order import Epoch, class_weights, weighted
from duet.utils.data.randomness import epoch_order
from duet.utils.data.sources.samples import Sample, table_of
from tests.environments import shared_path


def table(*classes, sizes=None):
    """Samples with objects of these classes."""
    sizes = sizes or [(10, 10)] * len(classes)
    return table_of([
        Sample(Path(f"{number}.jpg"), *size, np.array(found, np.int64),
               np.full((len(found), 4), 0.5, np.float32))
        for number, (found, size) in enumerate(zip(classes, sizes, strict=True))
    ])  # fmt: skip


@pytest.fixture(scope="module")
def golden():
    return np.load(shared_path("golden/recipe/weights.npz"))


@pytest.fixture(scope="module")
def stored(golden):
    """The stored labels, image by image."""
    ends = np.cumsum(golden["labels_per_image"])[:-1]
    return table(*np.split(golden["classes_concat"].astype(np.int64), ends))


def test_class_weights_match_public_values(golden, stored):
    found = class_weights(stored.class_index, 6)
    # Stored as float32.
    np.testing.assert_allclose(found, golden["class_weights"], rtol=1e-6)


def test_weighted_draw_frequencies_match_public_weights(golden, stored):
    scores = tuple(golden["epoch1_maps"].tolist())
    wanted = golden["epoch1_image_weights"]
    epochs = 400
    drawn = np.concatenate([weighted(3, stored, Epoch(e, scores)) for e in range(epochs)])
    assert len(drawn) == epochs * len(stored)
    parts = np.bincount(drawn, minlength=len(stored)) / len(drawn)
    expected = wanted / wanted.sum()
    # Five standard deviations of a part of 4,000 draws.
    allowed = 5 * np.sqrt(expected * (1 - expected) / len(drawn))
    assert (np.abs(parts - expected) <= allowed).all()
    assert (parts[wanted == 0] == 0).all()  # an image without objects is never shown


def test_weighted_draws_invert_the_cumulative_weights():
    samples = table([0], [0, 0, 0], [])
    # Class 0 alone, four objects: weights 1, 3, 0 of 4.
    points = np.random.Generator(np.random.Philox(counter=7 * 2**192, key=[11, 2])).random(3)
    expected = (points >= 0.25).astype(int)
    np.testing.assert_array_equal(weighted(11, samples, Epoch(7)), expected)
    np.testing.assert_array_equal(weighted(11, samples, Epoch(7, (0.5,))), expected)


@pytest.mark.parametrize(
    ("samples", "scores"),
    [(table([0], [1]), (1.0, 1.0)), (table([], []), ()), (table([], []), (0.5,))],
)
def test_zero_weights_draw_all_images_equally(samples, scores):
    drawn = [weighted(0, samples, Epoch(e, scores)) for e in range(200)]
    # 400 draws: 200 of each, five standard deviations of 10.
    assert abs(np.concatenate(drawn).sum() - 200) < 50


def test_draw_numbers_are_unique_within_an_epoch():
    samples = table([0], [1], [0, 0, 0, 0, 0, 0, 0], [])
    for is_weighted in (False, True):
        recipe = TrainRecipe(64, 4, image_weights=is_weighted)
        draws = draws_of(recipe, samples, Epoch(1))
        order = weighted(0, samples, Epoch(1)) if is_weighted else epoch_order(0, 1, 4)
        np.testing.assert_array_equal(draws % 4, order)
        assert len(set(draws.tolist())) == len(draws) == len(samples)
        seen = dict.fromkeys(range(4), 0)
        for draw in draws.tolist():  # the k-th time, k times the number of samples more
            assert draw // 4 == seen[draw % 4]
            seen[draw % 4] += 1


def test_sample_orders_are_freed_with_their_samples():
    samples = table([0], [1], [0, 1], [])
    source = TrainBatches(samples, TrainRecipe(64, 4))
    orders = [source.indices(Epoch(number), 0).tolist() for number in range(9)]
    assert orders == [epoch_order(0, number, 4).tolist() for number in range(9)]
    gone = weakref.ref(samples)
    del samples, source
    gc.collect()
    assert gone() is None
