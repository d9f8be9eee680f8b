"""Layout, precision and compilation change a step's speed only; work.json records its work."""

import json
import logging
import time
from types import SimpleNamespace

import numpy as np
import pytest

from duet import backend
from duet.backend import amp, autograd, dist, nn, ops
from duet.backend.processes import Process
from duet.models.detector import Detector, images_to_tensor
from duet.models.graph import read_model_yaml
from duet.models.inference.predictors import in_precision
from duet.models.training import start as start_of_run
from duet.models.training.execution import bfloat16_ratio, choose_precision
from duet.models.training.outputs import write_work
from duet.models.training.start import build_state
from duet.models.training.step import settle, train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import TrainConfig, parse_train_flags, read_train_flags
from duet.utils.errors import UserError
from duet.utils.processes.suspend import Suspended
from duet.utils.processes.world import World
from duet.utils.state.job import Job, Session, TrainData
from duet.utils.state.run import Run
from tests.small import write_small_model
from tests.train.short_runs import StopAt, folder_of, short_flags, small_training, start

FLAGS = {"bfloat16": "bf16", "float16": "fp16"}
OTHER_LOSS = "--label-smoothing", "0.1"
CHANNELS_LAST = backend.device.supports("channels_last")


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    # Batches of 5, 5 and 2.
    return small_training(tmp_path_factory.mktemp("inputs"), 5, write_small_model)


def run_steps(state, batches):
    """Losses (N, 3) of so many steps, and the gradients of the first, from before its update."""
    gradients = {}

    def keep(raw, targets, whole):
        for name, parameter in nn.named_parameters(state.model):
            if parameter.grad is not None and name not in gradients:
                gradients[name] = ops.to_numpy(parameter.grad)
        return plain(raw, targets, whole)

    plain, state.step_loss = state.step_loss, keep
    state.last_update = 0  # so that the first batches only accumulate
    losses = [
        [float(ops.to_numpy(term)) for term in terms.by_name.values()]
        for terms in (train_step(state, batch, StageTimer()) for batch in batches)
    ]
    return np.array(losses), gradients


def assert_like_the_plain_path(training, flags, loss_tolerance, gradient_tolerance):
    """Losses relative to each, gradients of a batch relative to the largest of a tensor."""
    start, batches = training
    wanted, wanted_gradients = run_steps(start("--layout", "contiguous"), batches)
    losses, gradients = run_steps(start(*flags), batches)
    np.testing.assert_allclose(losses, wanted, rtol=loss_tolerance)
    assert gradients.keys() == wanted_gradients.keys() and gradients
    for name, wanted_gradient in wanted_gradients.items():
        error = np.abs(gradients[name] - wanted_gradient).max()
        assert error <= gradient_tolerance * np.abs(wanted_gradient).max(), name


@pytest.mark.skipif(not CHANNELS_LAST, reason="the backend has one layout")
def test_channels_last_gives_equal_losses_and_gradients(training):
    # Sums in another order, over 24 layers: the tolerances of the stored outputs.
    assert_like_the_plain_path(training, ["--layout", "channels-last"], 2e-5, 2e-3)


def test_auto_layout_is_the_faster_one_of_the_backend(training, caplog):
    start, batches = training
    with caplog.at_level(logging.INFO):
        state = start()
    assert state.execution.channels_last is CHANNELS_LAST
    layout = "channels-last" if CHANNELS_LAST else "contiguous"
    assert state.execution.described == f"float32, {layout}, eager" and not caplog.messages
    assert not start("--layout", "contiguous").execution.channels_last


@pytest.mark.skipif(CHANNELS_LAST, reason="the backend has the layout")
def test_unsupported_layout_is_refused_with_the_next_step(training):
    start, _ = training
    with pytest.raises(UserError, match="--layout channels-last: .* use --layout auto"):
        start("--layout", "channels-last")


@pytest.mark.parametrize("dtype", FLAGS)
def test_half_precision_is_refused_or_close_to_float32(training, dtype):
    start, batches = training[0], training[1][:2]  # the second updates
    if dtype not in amp.supported("cpu"):
        with pytest.raises(UserError, match=f"cannot train in {dtype} on cpu; accepted: auto, off"):
            start("--amp", FLAGS[dtype])
        return
    # bfloat16 rounds to 2**-8, float16 to 2**-11, in each of 24 layers: measured 0.010 and 0.0011
    # for the losses, 0.09 and 0.002 for the angle between the gradients, 1 - cosine, which 2 x 2
    # cells of 5 images and a BatchNorm after each layer make large.
    loss_tolerance, angle = {"bfloat16": (0.03, 0.25), "float16": (0.004, 0.01)}[dtype]
    wanted, wanted_gradients = run_steps(start("--layout", "contiguous"), batches)
    state = start("--amp", FLAGS[dtype])
    if state.loss_scale.adapts:
        state.loss_scale.value = 64.0  # the first scales overflow here
    losses, gradients = run_steps(state, batches)
    np.testing.assert_allclose(losses, wanted, rtol=loss_tolerance)
    first, second = (
        np.concatenate([x[name].ravel() for name in wanted_gradients]).astype(np.float64)
        for x in (gradients, wanted_gradients)
    )
    # float16's are still multiplied by the loss scale, which an angle does not see.
    assert first @ second / np.linalg.norm(first) / np.linalg.norm(second) > 1 - angle


@pytest.mark.parametrize(
    ("preferred", "others", "chosen"),
    [
        ("float32", [], "float32"), ("bfloat16", [], "bfloat16"), ("float16", [], "float16"),
        ("bfloat16", ["bfloat16", "float16"], "float16"), ("float16", ["float32"], "float32"),
    ],
)  # fmt: skip
def test_auto_precision_suits_the_devices_of_all_ranks(monkeypatch, preferred, others, chosen):
    code = dict(zip(("float32", "float16", "bfloat16"), range(3), strict=True))
    of_others = [np.array([code[name]]) for name in others]
    monkeypatch.setattr(amp, "preferred", lambda device: preferred)
    monkeypatch.setattr(dist, "all_gather", lambda mine: [mine, *of_others])
    assert choose_precision("auto", "cpu", "float32") == chosen
    assert choose_precision("off", "cpu", "float32") == "float32"
    assert choose_precision("auto", "cpu", "float64") == "float64"


HAS_BFLOAT16 = pytest.mark.skipif(
    "bfloat16" not in amp.supported("cpu"), reason="the backend has no bfloat16"
)


def precision_of(folder):
    return json.loads((folder / "work.json").read_text())["work"]["precision"]


@HAS_BFLOAT16
def test_slower_bfloat16_falls_back_to_float32_on_a_cpu(tmp_path, monkeypatch, caplog):
    flags, ratios = [*short_flags(tmp_path), "--amp", "bf16", "--name", "slower"], [1.26]
    monkeypatch.setattr(start_of_run, "bfloat16_ratio", lambda *sizes: ratios.pop())
    with caplog.at_level("INFO"), pytest.raises(Suspended):
        start(flags, StopAt(4))
    assert "bfloat16 is slower than float32 on this CPU (x1.3); computing in float" in caplog.text
    assert "--amp bf16-always" in caplog.text and "float32, channels-last" in caplog.text
    start([*flags, "--resume", "auto"])  # keeps what it had: nothing is measured
    assert precision_of(folder_of(flags, "slower")) == "float32"


@HAS_BFLOAT16
@pytest.mark.parametrize(("asked", "ratios"), [("bf16", [0.9]), ("bf16-always", [])])
def test_faster_or_forced_bfloat16_is_used(tmp_path, monkeypatch, asked, ratios):
    monkeypatch.setattr(start_of_run, "bfloat16_ratio", lambda *sizes: ratios.pop())
    flags = [*short_flags(tmp_path), "--amp", asked, "--name", "fast", "--epochs", "1"]
    start(flags)
    assert precision_of(folder_of(flags, "fast")) == "bfloat16"


@HAS_BFLOAT16
@pytest.mark.parametrize("is_slower", [True, False])
def test_first_rank_decides_on_bfloat16_for_all(tmp_path, monkeypatch, is_slower):
    monkeypatch.setattr(start_of_run, "bfloat16_ratio", None)  # is not called
    config = TrainConfig(**read_train_flags([*short_flags(tmp_path), "--amp", "bf16"])[0])
    first = np.zeros(int(is_slower), np.uint8)  # as World.any sends a flag
    world = World(Process(rank=1, world_size=2), lambda own: [first, own])
    job = Job(config, None, None, Session(None, None, world))
    assert start_of_run.with_precision(job).config.amp == ("auto" if is_slower else "bf16")


@HAS_BFLOAT16
def test_bfloat16_is_timed_quickly_at_network_sizes(tmp_path):
    channels, cells = start_of_run.main_sizes(read_model_yaml("models/yolov5n.yaml"), 640)
    assert channels * cells == 64 * 80  # of each stage of YOLOv5n, but for the first
    begin = time.process_time()
    assert 0.05 < bfloat16_ratio(channels, cells) < 20
    assert time.process_time() - begin < 0.5 * backend.device.host_threads()


@HAS_BFLOAT16
def test_auto_precision_is_logged_with_its_alternative(training, monkeypatch, caplog):
    monkeypatch.setattr(amp, "preferred", lambda device: "bfloat16")
    with caplog.at_level(logging.INFO):
        execution = training[0]().execution
    assert execution.dtype == "bfloat16"
    assert execution.described.startswith(
        "bfloat16 (--amp auto; use --amp off for float32), channels-last"
    )


@pytest.mark.parametrize(("flags", "reported"), [((), []), (("--amp", "off"), ["cpu"])])
def test_only_amp_off_requests_exact_float32(training, monkeypatch, flags, reported):
    asked = []
    monkeypatch.setattr(backend.device, "compute_exactly", asked.append)
    assert training[0](*flags).execution.dtype == "float32"
    assert asked == reported


def test_validation_uses_the_training_precision(training):
    start, batches = training
    plain = start("--layout", "contiguous")
    assert in_precision(plain.ema.model, "cpu", "float32", False) is plain.ema.model
    images = images_to_tensor(batches[0].images, "cpu", channels_last=False)

    def maps(model):
        with autograd.no_grad():
            return [ops.to_numpy(level) for level in model(images)]

    for dtype in amp.supported("cpu"):
        state = start("--layout", "contiguous", "--amp", FLAGS[dtype])
        forward = state.execution.forward_of(state.ema.model)
        found = maps(in_precision(state.ema.model, "cpu", dtype, False))
        in_training = maps(lambda x, f=forward: [ops.cast(level, "float32") for level in f(x)])
        for level, trained, exact in zip(found, in_training, maps(plain.ema.model), strict=True):
            assert level.dtype == np.float32
            np.testing.assert_array_equal(level, trained)
            assert not np.array_equal(level, exact)


@pytest.mark.skipif("float16" not in amp.supported("cpu"), reason="the backend has no float16")
def test_float16_overflow_skips_updates_and_trains_on(training, caplog):
    start, batches = training
    state = start("--amp", "fp16")
    state.loss_scale.value = 2.0**40
    skipped = 0
    while state.ema.updates == 0:
        scale, before = state.loss_scale.value, skipped
        train_step(state, batches[0], StageTimer())
        settle(state)
        skipped = state.watch.skipped
        assert skipped < 10
        assert state.loss_scale.value == (scale / 2 if skipped > before else scale)
        state.loss_scale.value /= 2.0**4  # faster than by halves
    assert skipped > 0 and "a gradient is not finite" in caplog.text
    assert all(np.isfinite(array).all() for array in nn.state_arrays(state.model).values())
    assert np.isfinite(state.watch.end_epoch()).all()  # the losses themselves never overflowed


SHORT_MODEL = """
nc: 3
depth_multiple: 1.0
width_multiple: 1.0
anchors: [[10, 13, 16, 30, 33, 23]]
backbone: [[-1, 1, Conv, [8, 6, 4, 2]], [-1, 1, Conv, [8, 3, 2]]]
head: [[[1], 1, Detect, [nc, anchors]]]
"""


def test_compiled_step_equals_eager_or_says_it_is_eager(training, tmp_path, caplog):
    start, batches = training
    cfg = tmp_path / "short.yaml"
    cfg.write_text(SHORT_MODEL)
    with caplog.at_level(logging.INFO):
        state = start("--compile", "--bbox_iou_optim", *OTHER_LOSS, cfg=cfg)
        problem = autograd.compile_problem("cpu")
        assert state.execution.compiled is (problem is None)
        assert problem is None or f"eager (no --compile: {problem})" in state.execution.described
        # Batches of 5, 5 and 2: the last is none of the compiled shape.
        losses, gradients = run_steps(state, batches)
    eager, eager_gradients = run_steps(start(*OTHER_LOSS, cfg=cfg), batches)
    # Fused kernels round otherwise: some units of float32's last place in each of three layers.
    np.testing.assert_allclose(losses, eager, rtol=1e-5)
    for name, gradient in eager_gradients.items():
        error = np.abs(gradients[name] - gradient).max()
        assert error <= 1e-4 * np.abs(gradient).max(), name
    if problem is None:
        assert caplog.text.count("compiled Detector in") == 1
        assert "is not compiled" not in caplog.text


@pytest.fixture
def record(tmp_path):
    """work.json of a run that ended before its first batch."""

    def record(*flags):
        cfg = write_small_model(tmp_path)
        config = parse_train_flags(["--cfg", str(cfg), *flags])
        hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
        model = Detector(read_model_yaml(cfg, 3))
        model.initialize(seed=0)
        state = build_state(config, hyp, model, batches=3, device="cpu")
        job = Job(config, hyp, TrainData(("a", "b", "c"), [], []))
        write_work(Run(job, tmp_path), state, {})
        return json.loads((tmp_path / "work.json").read_text())

    return record


@pytest.mark.parametrize("problem", ["", "no compiler"])
def test_work_json_records_the_implementations_in_use(record, monkeypatch, problem):
    assert record()["means"] == {
        "compiled": False, "box_iou": "plain", "optimizer": "plain", "average": "plain",
    }  # fmt: skip
    compiler = SimpleNamespace(
        compile_problem=lambda device: problem or None, compiled=lambda function, *shapes: function
    )
    monkeypatch.setattr("duet.models.training.execution.autograd", compiler)
    asked = record("--compile", "--bbox_iou_optim", "--multi_tensor_optimizer")
    assert asked["means"] == {
        "compiled": not problem, "box_iou": "fast", "optimizer": "fast", "average": "fast",
    }  # fmt: skip
