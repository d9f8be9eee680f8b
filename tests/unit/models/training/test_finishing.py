"""Colours and flips on the device: its pixels are those of the loader up to one grey level."""

import importlib

import numpy as np
import pytest

from duet import backend
from duet.backend import fused, ops
from duet.models.training import finishing
from duet.models.training.step import network_images
from duet.utils.data.augment.sample import hsv_tables
from duet.utils.data.loading.batch import Batch, Finishing
from duet.utils.data.loading.batches import finished
from tests.unit.models.training.test_step import draw_batch, make_state

RANDOM = np.random.default_rng(0)
GAINS = 1 + (2 * RANDOM.random((5, 3)) - 1) * [0.015, 0.7, 0.4]
GAINS[3] = 1  # its colours stay
UNFINISHED = Finishing(GAINS, np.array([[0, 0], [1, 0], [0, 1], [1, 1], [0, 0]], bool))
ONE_LEVEL = 1.001 / 255
has_finishing = pytest.mark.skipif(
    not backend.device.supports("finishing"), reason="OpenCV finishes images there"
)


@has_finishing
def test_device_finishing_matches_the_loader(tmp_path):
    state, batch = make_state(tmp_path), draw_batch()
    expected = ops.to_numpy(
        network_images(state, batch._replace(images=finished(batch.images, UNFINISHED)))
    )
    left = batch._replace(finishing=UNFINISHED)
    np.testing.assert_allclose(ops.to_numpy(network_images(state, left)), expected, 0, ONE_LEVEL)
    pieces = [ops.to_numpy(network_images(state, piece)) for piece in left.pieces(2)]
    np.testing.assert_allclose(np.concatenate(pieces), expected, 0, ONE_LEVEL)


@has_finishing
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_finishing_compiles_to_one_graph():
    dynamo = importlib.import_module("torch._dynamo")
    module = importlib.import_module("duet.backend.torch.finishing")
    scales, *constants = (
        module._constant(name, "cpu", "float32") for name in ("scales", *module.CONSTANTS)
    )
    changes = np.concatenate([UNFINISHED.flips, np.ones((5, 1), bool)], axis=1)
    numbers = ops.tensor(hsv_tables(GAINS)) * scales, ops.tensor(changes)
    inputs = ops.tensor(draw_batch().images), *numbers, *constants
    dynamo.reset()
    for layout in (False, True):
        found = dynamo.explain(module._finished)(*inputs, layout)
        assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons


def test_cpu_leaves_colours_and_flips_to_the_loader(caplog):
    with caplog.at_level("INFO", "train"):
        assert not finishing.choose_finishing(True, (64, 64), "cpu", "float32", False)
        assert not finishing.choose_finishing(False, (64, 64), "cuda:0", "float32", False)
    assert caplog.messages == [
        f"--device-augment: colours and flips: OpenCV does it in the loader "
        f"({fused.finish_problem('cpu')})"
    ]


@has_finishing
def test_kernel_is_tried_before_it_is_used(monkeypatch):
    def trial():
        return finishing.trial_problem((32, 64), "cpu", "float32", False)

    right = fused.finish_images
    monkeypatch.setattr(fused, "finish_problem", lambda device: None)
    assert trial() == ""

    def broken(*_):
        raise RuntimeError("no C compiler\nbesides")

    monkeypatch.setattr(fused, "finish_images", broken)
    assert trial() == "no C compiler"
    monkeypatch.setattr(fused, "finish_images", lambda *args: right(*args) + 0.01)
    assert trial().startswith("pixels differ by 0.01")


def test_batch_without_finishing_is_only_normalized(tmp_path):
    state, batch = make_state(tmp_path), draw_batch()
    assert isinstance(batch, Batch) and batch.finishing is None
    np.testing.assert_array_equal(ops.to_numpy(network_images(state, batch)), batch.images / 255)
