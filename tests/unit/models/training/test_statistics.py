"""BatchNorm's statistics measured anew: those of all pixels of the batches, by NumPy."""

import logging

import numpy as np
import pytest

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.training.start import build_state
from duet.models.training.statistics import join_statistics, recommend, recompute_statistics
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import TrainConfig
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.strengths import AugmentConfig
from tests.small import write_small_dataset, write_tiny_model

SIZE, BATCH = 64, 5  # of 12 images the last batch has 2


@pytest.fixture
def state(tmp_path):
    model = Detector(read_model_yaml(str(write_tiny_model(tmp_path)), 5))
    model.initialize(0)
    config = TrainConfig(image_size=SIZE, batch_size=BATCH, device="cpu")
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    return build_state(config, hyp, model, batches=3, device="cpu")


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    dataset = load_dataset(str(write_small_dataset(tmp_path_factory.mktemp("data"))))
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    augment: AugmentConfig = hyp.augmentation()
    return TrainLoader(load_split(dataset, "train"), TrainRecipe(SIZE, BATCH, augment))


def test_statistics_of_batches_join_to_those_of_all_rows():
    values = np.random.default_rng(0).normal(3, [1, 5, 0.1], (60, 3))
    parts = np.split(values, [10, 40])  # of 1, 3 and 2 images with 10 pixels each
    rows = [[len(part) / 10, *part.mean(0), *part.var(0)] for part in parts]
    joined = join_statistics(np.array(rows))
    np.testing.assert_allclose(joined, [*values.mean(0), *values.var(0)], rtol=1e-12)


@pytest.mark.parametrize(("number", "first"), [(2, 1), (99, 0)])
def test_the_first_layer_gets_the_mean_and_variance_of_its_inputs(state, loader, number, first):
    state.epoch = 4
    images = [loader.batch(4, index).images for index in range(first, 3)]
    assert [len(x) for x in images] == [5, 5, 2][first:]
    recompute_statistics(state, loader, number)
    found = nn.state_arrays(state.ema.model)
    with autograd.no_grad():
        scaled = [ops.tensor(x.astype(np.float32) / np.float32(255)) for x in images]
        outputs = [ops.to_numpy(state.ema.model.model[0].conv(x)) for x in scaled]
    pixels = np.concatenate([x.transpose(0, 2, 3, 1).reshape(-1, 8) for x in outputs])
    # Numbers around 1 in float32. The variance of a batch is divided by its pixels less one: 511.
    np.testing.assert_allclose(found["model.0.bn.running_mean"], pixels.mean(0), atol=2e-6)
    np.testing.assert_allclose(found["model.0.bn.running_var"], pixels.var(0), rtol=1 / 500)


def test_nothing_else_changes_and_a_second_time_neither_do_the_statistics(state, loader):
    live, before = nn.state_arrays(state.model), nn.state_arrays(state.ema.model)
    recompute_statistics(state, loader, 2)
    once = nn.state_arrays(state.ema.model)
    changed = {name for name in before if not np.array_equal(before[name], once[name])}
    assert changed == {name for name in before if "running" in name}
    recompute_statistics(state, loader, 2)
    for name, array in nn.state_arrays(state.ema.model).items():
        np.testing.assert_array_equal(array, once[name])
    for name, array in nn.state_arrays(state.model).items():
        np.testing.assert_array_equal(array, live[name])
    assert not state.ema.model.training


def test_statistics_that_are_not_finite_are_left_out(state, loader, caplog):
    arrays = nn.state_arrays(state.ema.model)
    broken = arrays | {"model.1.conv.weight": np.full_like(arrays["model.1.conv.weight"], np.nan)}
    nn.load_state_arrays(state.ema.model, broken)
    recompute_statistics(state, loader, 1)
    assert "--precise-bn: the statistics are not finite" in caplog.text
    found = nn.state_arrays(state.ema.model)
    for name in (name for name in found if "running" in name):
        np.testing.assert_array_equal(found[name], arrays[name])


@pytest.mark.parametrize(
    ("number", "batches", "said"), [(0, 32, True), (0, 33, False), (1, 9, False)]
)
def test_it_is_recommended_where_epochs_have_few_batches(number, batches, said, caplog):
    with caplog.at_level(logging.INFO):
        recommend(number, batches)
    assert ("--precise-bn 8" in caplog.text) == said
    assert all(len(line) <= 80 for text in caplog.messages for line in text.splitlines())
