"""A batch in pieces: the same gradients and losses, and nothing lost where memory runs out."""

import dataclasses

import numpy as np
import pytest

from backend import nn, ops
from backend.processes import Process
from models.detector import Detector
from models.graph import read_model_yaml
from models.training.pieces import pieces_of
from models.training.state import build_state
from models.training.step import train_step
from tests.out_of_memory import run_out
from tests.small import write_tiny_model
from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from utils.cli.train_config import TrainConfig
from utils.data.loading.batch import Batch, Targets
from utils.errors import UserError
from utils.report.stage_timer import StageTimer

SIZE, IMAGES = 64, 5
OBJECTS = [3, 0, 1, 4, 0]  # of each image


@pytest.fixture
def state(tmp_path):
    """In float64, and with BatchNorm as in evaluation: it would see the pieces."""
    return make_state(tmp_path)


def make_state(folder, **flags):
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


def assert_alike(found, wanted):
    for name, gradient in wanted[0].items():
        # Sums of some thousand float64 numbers in another order.
        np.testing.assert_allclose(
            found[0][name], gradient, rtol=1e-10, atol=1e-12 * np.abs(gradient).max(), err_msg=name
        )
    for left, right in zip(found[1], wanted[1], strict=True):
        assert left == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("autobalance", [False, True])
def test_gradients_and_losses_of_pieces_add_up_to_those_of_the_batch(tmp_path, size, autobalance):
    whole, cut = (
        make_state(tmp_path, autobalance=autobalance, micro_batch=number) for number in (0, size)
    )
    assert_alike(run_steps(cut), run_steps(whole))
    balance, wanted = cut.loss.state(), whole.loss.state()
    assert balance.keys() == wanted.keys()
    for name, weights in wanted.items():
        assert balance[name] == pytest.approx(weights, rel=1e-12)


def test_a_batch_without_objects_or_images_is_computed_too(tmp_path):
    whole, cut = (make_state(tmp_path, micro_batch=number) for number in (0, 2))
    terms = [train_step(s, draw_batch(0, [0, 0, 0]), StageTimer()) for s in (whole, cut)]
    values = [float(ops.to_numpy(x.by_name["objectness"])) for x in terms]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    empty = draw_batch(0, [])
    assert [len(piece.images) for piece in pieces_of(empty, 2)] == [0]


class Memory:
    """A forward pass that runs out of memory for more than so many images."""

    def __init__(self, state, most):
        self.forward, self.most, self.seen = state.forward, most, []

    def __call__(self, images):
        self.seen.append(images.shape[0])
        if images.shape[0] > self.most:
            run_out()
        return self.forward(images)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_the_batch_begins_anew_with_half_as_many_images(tmp_path, state, most, caplog):
    wanted = run_steps(make_state(tmp_path))
    state.forward = memory = Memory(state, most)
    assert_alike(run_steps(state), wanted)
    assert state.micro_batch == {4: 3, 2: 2, 1: 1}[most]
    assert len(caplog.records) == {4: 1, 2: 2, 1: 3}[most]
    assert "out of memory with 5 images of 64 x 64 px at a time: from now on 3" in caplog.text
    first = {4: [5, 2, 3], 2: [5, 2, 3, 1, 2, 2], 1: [5, 2, 1, 2, 1, 1, 1, 1, 1]}[most]
    second = {4: [2, 3], 2: [1, 2, 2], 1: [1, 1, 1, 1, 1]}[most]
    assert memory.seen == first + second


def test_what_a_broken_backward_pass_left_is_taken_back(tmp_path, state):
    """The second batch runs out of memory after its gradients were added to the first one's."""
    wanted = run_steps(make_state(tmp_path))
    step_loss, calls = state.step_loss, []

    class Total:
        def __init__(self, total):
            self.total = total

        def backward(self):
            self.total.backward()
            run_out()

    def loss(raw, targets, whole):
        terms = step_loss(raw, targets, whole)
        calls.append(raw[0].shape[0])
        return terms._replace(total=Total(terms.total)) if len(calls) == 2 else terms

    state.step_loss = loss
    assert_alike(run_steps(state), wanted)
    assert calls == [5, 5, 2, 3]


def test_a_first_batch_that_broke_leaves_no_gradient(tmp_path, state):
    wanted = run_steps(make_state(tmp_path), batches=1)
    state.forward = Memory(state, 4)
    assert_alike(run_steps(state, batches=1), wanted)


def test_an_update_of_pieces_moves_weights_and_average_alike(tmp_path, state):
    whole = make_state(tmp_path)
    state.forward = Memory(state, 3)
    for x in (whole, state):
        run_steps(x, batches=5)  # the fourth is the last of an update
        assert x.ema.updates == 1
    arrays = nn.state_arrays(whole.ema.model)
    for name, array in nn.state_arrays(state.ema.model).items():
        np.testing.assert_allclose(array, arrays[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_one_image_that_does_not_fit_is_an_error_with_the_next_step(state):
    state.forward = Memory(state, 0)
    with pytest.raises(UserError, match="out of memory with 1 image of 64 x 64 px.*smaller --img"):
        run_steps(state)


def test_other_errors_stay_what_they_are(state):
    def broken(images):
        raise RuntimeError("an illegal memory access")

    state.forward = broken
    with pytest.raises(RuntimeError, match="illegal memory access"):
        run_steps(state)
    assert state.micro_batch == 0


@pytest.mark.parametrize("stage", ["loss", "backward"])
@pytest.mark.parametrize(("sync_bn", "way"), [(True, "--sync-bn"), (False, "--micro-batch 3")])
def test_several_processes_in_an_exchange_cannot_begin_anew(
    state, monkeypatch, sync_bn, way, stage
):
    monkeypatch.setattr("models.training.pieces.this_process", lambda: Process(0, 0, 2))
    state.sync_bn = sync_bn
    state.last_update = -9  # the first batch is the last of an update
    step_loss = state.step_loss

    def loss(raw, targets, whole):
        if stage == "loss":
            run_out()
        terms = step_loss(raw, targets, whole)
        return terms._replace(total=Total())

    class Total:
        def backward(self):
            run_out()

    state.step_loss = loss
    with pytest.raises(UserError, match=f"while processes were exchanging numbers.*{way}"):
        run_steps(state)


def test_pieces_are_as_few_and_as_equal_as_they_can_be():
    batch = draw_batch()
    sizes = {0: [5], 1: [1] * 5, 2: [1, 2, 2], 3: [2, 3], 4: [2, 3], 5: [5], 9: [5]}
    for size, wanted in sizes.items():
        pieces = list(pieces_of(batch, size))
        assert [len(piece.images) for piece in pieces] == wanted
        np.testing.assert_array_equal(np.concatenate([x.images for x in pieces]), batch.images)
        starts = np.cumsum([0, *wanted])[:-1]
        joined = [x.targets.image_index + start for x, start in zip(pieces, starts, strict=True)]
        np.testing.assert_array_equal(np.concatenate(joined), batch.targets.image_index)


def test_targets_between_images_are_counted_from_the_first():
    found = draw_batch().targets.between(2, 4)
    assert found.image_index.tolist() == [0, 1, 1, 1, 1]
    assert found.boxes_cxcywh_norm.shape == (5, 4)
