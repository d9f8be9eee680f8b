"""A batch in chunks has the whole batch's gradients and losses; flags for several processes."""

import contextlib
import dataclasses
import logging

import numpy as np
import pytest

from duet import backend
from duet.backend import nn, ops
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.training import start
from duet.models.training.start import build_state
from duet.models.training.step import train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import TrainConfig
from duet.utils.data.loading.batch import Batch, Targets
from tests.small import write_tiny_model

SIZE = 64
OBJECTS = [3, 0, 1, 4, 0]  # of each image


def make_state(folder, **flags):
    """In float64, and with BatchNorm as in evaluation: it would see the pieces."""
    model = Detector(read_model_yaml(str(write_tiny_model(folder)), 5))
    model.initialize(0)
    config = TrainConfig(image_size=SIZE, batch_size=16, device="cpu", **flags)
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    hyp = dataclasses.replace(hyp, warmup_epochs=0)  # 4 batches an update from the first on
    state = build_state(config, hyp, model, batches=9, device="cpu", dtype="float64")
    state.model.eval()
    return state


def draw_batch(seed=0, objects=OBJECTS):
    generator = np.random.default_rng(seed)
    image_index = np.repeat(np.arange(len(objects)), objects)
    count = len(image_index)
    boxes = np.concatenate(
        [generator.uniform(0.2, 0.8, (count, 2)), generator.uniform(0.1, 0.6, (count, 2))], 1
    )
    targets = Targets(image_index, generator.integers(0, 5, count), boxes.astype(np.float32))
    images = generator.integers(0, 256, (len(objects), 3, SIZE, SIZE), np.uint8)
    indices = np.arange(len(objects))
    return Batch(images, targets, indices, (), indices)


def run_steps(state, batches=2):
    """The gradients after some batches, none of which is the last of an update; their terms."""
    found = [train_step(state, draw_batch(seed), StageTimer()) for seed in range(batches)]
    gradients = {name: ops.to_numpy(x.grad) for name, x in nn.named_parameters(state.model)}
    terms = [{name: float(ops.to_numpy(x)) for name, x in t.by_name.items()} for t in found]
    return gradients, terms


@pytest.mark.parametrize(
    ("flags", "repeat"), [({}, True), ({"multi_scale": True}, False), ({"rect": True}, False)]
)
def test_step_declares_whether_its_shapes_repeat(tmp_path, monkeypatch, flags, repeat):
    asked = []

    def shapes_repeat(device, repeat):
        asked.append((device, repeat))
        return contextlib.nullcontext()

    monkeypatch.setattr(backend.device, "shapes_repeat", shapes_repeat)
    train_step(make_state(tmp_path, **flags), draw_batch(), StageTimer())
    assert asked == [("cpu", repeat)]


@pytest.mark.parametrize("size", [1, 3])
def test_micro_batches_add_up_to_the_whole_batch(tmp_path, size):
    whole, cut = (make_state(tmp_path, micro_batch=number) for number in (0, size))
    found, wanted = run_steps(cut), run_steps(whole)
    for name, gradient in wanted[0].items():
        # Sums of some thousand float64 numbers in another order.
        np.testing.assert_allclose(
            found[0][name], gradient, rtol=1e-10, atol=1e-12 * np.abs(gradient).max(), err_msg=name
        )
    for left, right in zip(found[1], wanted[1], strict=True):
        assert left == pytest.approx(right, rel=1e-12)


def test_batch_without_objects_or_images_is_computed(tmp_path):
    whole, cut = (make_state(tmp_path, micro_batch=number) for number in (0, 2))
    terms = [train_step(s, draw_batch(0, [0, 0, 0]), StageTimer()) for s in (whole, cut)]
    values = [float(ops.to_numpy(x.by_name["objectness"])) for x in terms]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    empty = draw_batch(0, [])
    assert [len(piece.images) for piece in empty.pieces(2)] == [0]


def test_update_from_pieces_moves_the_average_alike(tmp_path):
    whole, cut = (make_state(tmp_path, micro_batch=number) for number in (0, 3))
    for x in (whole, cut):
        run_steps(x, batches=5)  # the fourth is the last of an update
        assert x.ema.updates == 1
    arrays = nn.state_arrays(whole.ema.model)
    for name, array in nn.state_arrays(cut.ema.model).items():
        np.testing.assert_allclose(array, arrays[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_pieces_are_few_and_nearly_equal():
    batch = draw_batch()
    sizes = {0: [5], 1: [1] * 5, 2: [1, 2, 2], 3: [2, 3], 4: [2, 3], 5: [5], 9: [5]}
    for size, wanted in sizes.items():
        pieces = list(batch.pieces(size))
        assert [len(piece.images) for piece in pieces] == wanted
        np.testing.assert_array_equal(np.concatenate([x.images for x in pieces]), batch.images)
        starts = np.cumsum([0, *wanted])[:-1]
        joined = [x.targets.image_index + start for x, start in zip(pieces, starts, strict=True)]
        np.testing.assert_array_equal(np.concatenate(joined), batch.targets.image_index)


def norm_of(sync_bn=False):
    """A BatchNorm layer in training, as `parallelize` leaves it in this process."""
    return start.parallelize(nn.BatchNorm2d(2).train(), sync_bn)


def test_sync_bn_in_one_process_is_reported_as_idle(caplog):
    caplog.set_level(logging.INFO, "train")
    norm_of()
    assert caplog.messages == []
    norm_of(sync_bn=True)
    assert caplog.messages == ["--sync-bn has no effect in a single process"]


def test_sync_bn_in_one_process_keeps_plain_layers():
    x = ops.tensor(np.random.default_rng(0).normal(3, 2, (4, 2, 5, 5)).astype(np.float32))
    plain, asked = (ops.to_numpy(norm_of(sync_bn=joins)(x)) for joins in (False, True))
    np.testing.assert_array_equal(asked, plain)
