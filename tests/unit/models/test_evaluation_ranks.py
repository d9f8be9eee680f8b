"""Validation shared by ranks finds what one process finds."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from duet.backend import ops
from duet.models.evaluation.evaluate import Evaluation
from duet.models.heads.anchor.head import AnchorHead
from duet.models.heads.base import LossTerms
from duet.models.inference import predictors
from duet.utils.data.loading.batches import ValRecipe
from duet.utils.data.loading.loader import ValLoader
from duet.utils.processes.world import ALONE
from tests.rank_threads import run_rank_threads
from tests.unit.models.test_evaluation import noise

CLASS_NAMES = ("a", "b")
SIZES = ((48, 80), (96, 64), (64, 64), (30, 96), (90, 70), (64, 60), (33, 44))  # (height, width)
NUM_BATCHES = 3  # of three images; the last holds one, so that other ranks have none
_ONE_AT_A_TIME = threading.Lock()  # ranks are threads here, and a framework's process is one rank


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return noise(tmp_path_factory.mktemp("images"), SIZES, lambda number: number % 3)


class PerImage:
    """A detector whose predictions depend on each image alone, to the bit; counts its calls."""

    fixed_size, takes_arrays = None, False

    def __init__(self):
        self.calls, self.head = 0, AnchorHead(2, [[10, 13]], [8], [8])

    def __call__(self, images):
        self.calls += 1
        return (images,)

    def decode_above(self, raw, threshold):
        with _ONE_AT_A_TIME:
            return [self._predict(image) for image in ops.to_numpy(raw[0])]

    def _predict(self, image):
        seed = int((image * 255).astype(np.int64).sum())
        random = np.random.Generator(np.random.Philox(seed))
        height, width = image.shape[1:]
        rows = random.random((seed % 5, 7)).astype(np.float32)  # none at all in some images
        # Near the labels, some of them: the figures are not zero.
        rows[:, :4] = np.float32([width / 2, height / 2, width / 3, height / 3]) + 9 * rows[:, :4]
        return rows


class CountedLoss:
    """Terms that are a rank's part of a sum over the batch's images; counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, raw, targets):
        self.calls += 1
        with _ONE_AT_A_TIME:
            bright = (ops.to_numpy(raw[0]) > 0.5).sum()  # a whole number: exact in float32
            terms = bright, len(targets.class_index), targets.class_index.sum()
            by_name = {str(name): ops.full((), float(term)) for name, term in enumerate(terms)}
            return LossTerms(by_name, ops.full((), 0.0))


@pytest.fixture(autouse=True)
def one_thread_at_a_time(monkeypatch):
    to_tensor = predictors.images_to_tensor

    def locked(*arguments, **options):
        with _ONE_AT_A_TIME:
            return to_tensor(*arguments, **options)

    monkeypatch.setattr(predictors, "images_to_tensor", locked)


def evaluate(samples, world=ALONE, model=None, loss=None, **options):
    images = []
    sink = SimpleNamespace(add=lambda index, *found: images.append((index, *arrays_in(*found))))
    with ValLoader(samples, ValRecipe(96, 3), world=world) as loader:
        assert len(loader) == NUM_BATCHES
        validation = Evaluation(
            model or PerImage(), samples, CLASS_NAMES, "cpu", sinks=[sink], loss=loss, **options
        ).run(loader)
    return validation, images


def arrays_in(detections, ground_truth):
    return [array for array in (*detections, *ground_truth) if array is not None]


def assert_same_images(found, expected):
    assert [image[0] for image in found] == [image[0] for image in expected]
    for mine, theirs in zip(found, expected, strict=True):
        for array, wanted in zip(mine[1:], theirs[1:], strict=True):
            assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_array_equal(array, wanted)


def assert_same_figures(found, expected):
    """To the bit."""
    np.testing.assert_array_equal(found.losses, expected.losses)
    assert found.result.num_images == expected.result.num_images == len(SIZES)
    assert found.result.confidence == expected.result.confidence
    for name in ("precision", "recall", "precision_curves", "num_ground_truth"):
        np.testing.assert_array_equal(getattr(found.result, name), getattr(expected.result, name))
    mine, theirs = found.result, expected.result
    np.testing.assert_array_equal(mine.confusion.matrix(), theirs.confusion.matrix())
    assert theirs.confusion.matrix()[:2].sum() > 3
    for curves, wanted in zip(mine.by_confidence, theirs.by_confidence, strict=True):
        np.testing.assert_array_equal(curves, wanted)
    assert list(mine.examples) == list(theirs.examples) == list(range(len(SIZES)))
    for index, example in theirs.examples.items():
        for array, wanted in zip(mine.examples[index].found, example.found, strict=True):
            np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_all_ranks_return_the_single_process_result(samples, world_size):
    expected, images = evaluate(samples, loss=CountedLoss())
    assert expected.result.map > 0 and expected.losses.all()

    def work(world):
        return evaluate(samples, world, loss=CountedLoss())

    ranks = run_rank_threads(world_size, work)
    for validation, _ in ranks:
        assert_same_figures(validation, expected)
    assert_same_images(ranks[0][1], images)
    assert [received for _, received in ranks[1:]] == [[]] * (world_size - 1)


def test_rank_without_images_computes_only_for_the_loss(samples):
    def work(world):
        alone, with_loss, loss = PerImage(), PerImage(), CountedLoss()
        evaluate(samples, world, alone)
        evaluate(samples, world, with_loss, loss)
        return alone.calls, with_loss.calls, loss.calls

    everything = (NUM_BATCHES, NUM_BATCHES, NUM_BATCHES)
    assert run_rank_threads(2, work) == [everything, (NUM_BATCHES - 1, *everything[1:])]
    # With as many ranks as a batch has images twice over, some have none from the first batch on.
    assert {calls[0] for calls in run_rank_threads(6, work)} == {0, NUM_BATCHES - 1, NUM_BATCHES}
