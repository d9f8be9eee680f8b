"""A step in graphs leaves the weights, EMA and losses of a step without, bit for bit.

No GPU is needed: a stand-in does on a CPU the worst that graphs may do. What a compiled function
returns, and the gradients that it computes, lie in memory that the beginning of the next pass fills
with NaN.
"""

import dataclasses
import importlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from duet import backend
from duet.backend import autograd, fused, nn, ops
from duet.backend.processes import Process
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.heads.base import LossSettings
from duet.models.training import execution
from duet.models.training.start import build_state
from duet.models.training.step import settle, train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.loading.batch import Batch, TargetMasks, Targets
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.items import BOXES, MaskItems
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from tests.small import (
    CLASSIFIER,
    write_outlined_dataset,
    write_segmenter_yaml,
    write_small_dataset,
    write_tiny_anchor_free,
    write_tiny_model,
)
from tests.train.short_runs import losing


class GraphMemory:
    """Runs functions as they are; keeps their results and gradients until the next pass.

    Attributes:
        passes: that were begun.
    """

    def __init__(self) -> None:
        self.torch = importlib.import_module("duet.backend.torch.autograd").torch
        self.passes = 0
        self._kept: list[Any] = []
        memory = self

        class Lent(self.torch.autograd.Function):
            """Copy numbers into the memory, and their gradients."""

            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return memory.take(x)

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return memory.take(gradient)

        self._lent = Lent.apply

    def take(self, x: Any) -> Any:
        copied = x.clone()
        self._kept.append(copied.data)  # without a count of changes: they are silent
        return copied

    def compile(self, function: Any, dynamic: bool, mode: str | None) -> Any:
        """Stand in for `torch.compile`."""
        assert mode == "reduce-overhead" and not dynamic

        def run(*inputs: Any) -> Any:
            if not isinstance(function, self.torch.nn.Module):
                return self._lend(function(*self._lend(inputs)))
            weights = self._lend(dict(function.named_parameters()))
            return self._lend(self.torch.func.functional_call(function, weights, inputs))

        return run

    def begin_pass(self) -> None:
        """Stand in for `torch.compiler.cudagraph_mark_step_begin`."""
        self.passes += 1
        for x in self._kept:
            x.fill_(float("nan") if x.is_floating_point() else 0)
        self._kept.clear()

    def _lend(self, tree: Any) -> Any:
        def lend(x: Any) -> Any:
            return self._lent(x) if x.is_floating_point() else x

        return self.torch.utils._pytree.tree_map_only(self.torch.Tensor, lend, tree)


def run_in_graph_memory(monkeypatch: pytest.MonkeyPatch) -> GraphMemory:
    """Have compiled steps on a CPU run in such a memory."""
    memory = GraphMemory()
    monkeypatch.setattr(memory.torch, "compile", memory.compile)
    monkeypatch.setattr(memory.torch.compiler, "cudagraph_mark_step_begin", memory.begin_pass)
    compile_steps(monkeypatch, no_graphs="")
    return memory


def compile_steps(monkeypatch: pytest.MonkeyPatch, no_graphs: str) -> None:
    """Have --compile find a compiler, and graphs unless there is a reason against them."""
    monkeypatch.setattr(autograd, "compile_problem", lambda device: None)
    monkeypatch.setattr(execution, "graph_problem", lambda device, drops: no_graphs)


ON_TORCH = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow compiles no step")
LOST = 4  # batch, and so the update that it is in
IN_PIECES = "--micro-batch", "2"


def classifier(folder):
    path = folder / "classifier.yaml"
    path.write_text(CLASSIFIER, encoding="utf-8")
    return path


class Inputs(NamedTuple):
    """A model, and what it is trained on."""

    cfg: Path
    num_classes: int
    batches: list[Batch]  # of 5, 2, 5, 5, 5, 5, 2, 5 and 5 images


def inputs_of(data, cfg, items):
    dataset = load_dataset(data)
    samples = load_split(dataset, "train")
    with TrainLoader(samples, TrainRecipe(64, 5, items=items)) as loader:
        whole, other, rest = loader.epoch(0)
    batches = [whole, rest, other, whole, other, whole, rest, other, whole]
    return Inputs(cfg, len(dataset.class_names), batches)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boxes")
    return inputs_of(write_small_dataset(folder), write_tiny_model(folder), BOXES)


@pytest.fixture(scope="module")
def masks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    return inputs_of(write_outlined_dataset(folder), write_segmenter_yaml(folder), MaskItems())


def start(inputs, flags):
    """Return a state that makes an update of each two batches."""
    config = parse_train_flags(["--cfg", str(inputs.cfg), "--img", "64", "--batch", "5", *flags])
    hyp = dataclasses.replace(read_hyperparameters(DEFAULT_HYPERPARAMETERS), warmup_epochs=0)
    model = Detector(read_model_yaml(inputs.cfg, inputs.num_classes))
    model.initialize(seed=0)
    state = build_state(config, hyp, model, batches=len(inputs.batches), device="cpu")
    state.schedule = dataclasses.replace(state.schedule, batch_size=32)
    return state


def trained(inputs, flags):
    """Return all that a training leaves: weights, EMA, optimizer, loss, and losses read late."""
    state = start(inputs, ("--compile", *flags))
    losing(state, {LOST})
    returned = [train_step(state, batch, StageTimer()) for batch in inputs.batches]
    settle(state)
    watch = state.watch.state()
    parts = {
        "weights": nn.state_arrays(state.model),
        "EMA": nn.state_arrays(state.ema.model),
        "optimizer": state.optimizer.state_arrays(),
        "gradient": {  # of the last batch, half an update
            name: ops.to_numpy(x.grad) for name, x in nn.named_parameters(state.model)
        },
        "losses": {"read": watch["first_losses"], "mean": watch["sums"]},
        "updates": {"lost": watch["skipped"]},
        "total": {f"of batch {i}": ops.to_numpy(x.total) for i, x in enumerate(returned)},
    }
    return {f"{part} {n}": np.array(x) for part, found in parts.items() for n, x in found.items()}


def trained_without_graphs(inputs, flags):
    """Return the same of functions that run as they are, where graphs are not asked for."""
    torch = importlib.import_module("duet.backend.torch.autograd").torch
    with pytest.MonkeyPatch.context() as patch:
        compile_steps(patch, no_graphs="not asked for")
        patch.setattr(torch, "compile", lambda function, dynamic, mode: function)
        return trained(inputs, flags)


def differing(found, wanted):
    both = found.keys() & wanted.keys()
    unequal = {name for name in both if not np.array_equal(found[name], wanted[name], True)}
    return unequal | (found.keys() ^ wanted.keys())


@ON_TORCH
@pytest.mark.parametrize(
    ("task", "flags", "passes"),
    [
        ("boxes", ("--multi_tensor_optimizer", "--optimizer", "AdamW", "--amp", "bf16"), 9),
        ("boxes", IN_PIECES, 7 * 3 + 2),
        ("boxes", ("--multi_tensor_optimizer", "--micro-batch", "3"), 7 * 2 + 2),
        ("masks", (), 9),
    ],
)
def test_graphs_reproduce_training_bit_for_bit(request, monkeypatch, task, flags, passes):
    inputs = request.getfixturevalue(task)
    wanted = trained_without_graphs(inputs, flags)
    assert wanted["updates lost"] == 1 and not np.isfinite(wanted["losses read"][LOST]).any()
    memory = run_in_graph_memory(monkeypatch)
    assert differing(trained(inputs, flags), wanted) == set()
    assert memory.passes == passes


@pytest.mark.parametrize(
    ("drops", "device", "ranks", "reason"),
    [
        (False, "cpu", 1, "not on a GPU"),
        (False, "cuda:0", 2, "several processes exchange gradients"),
        (True, "cuda:0", 1, "--dropout draws a new tensor"),
    ],
)
def test_unrecordable_step_is_not_recorded(monkeypatch, drops, device, ranks, reason):
    monkeypatch.setattr(execution, "this_process", lambda: Process(world_size=ranks))
    assert execution.graph_problem(device, drops).startswith(reason)


@ON_TORCH
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(
    "write_model", [write_tiny_model, write_tiny_anchor_free, write_segmenter_yaml, classifier]
)
def test_compiled_functions_have_no_graph_breaks(tmp_path, write_model):
    dynamo = importlib.import_module("torch._dynamo")
    _ = fused.complete_iou  # looked up before, as `Execution` does
    model = Detector(read_model_yaml(write_model(tmp_path), 5))
    model.initialize(seed=0)
    random = np.random.default_rng(0)
    images = autograd.variable(random.uniform(size=(2, 3, 64, 64)).astype(np.float32))
    boxes = np.array([[0.5, 0.5, 0.3, 0.4], [0.4, 0.6, 0.6, 0.2]], np.float32)
    masks = TargetMasks(np.ones((2, 32, 32), np.uint8), np.arange(2), np.ones(2, np.uint8))
    targets = Targets(np.arange(2), np.arange(2), boxes, masks)
    called = []

    def recording(function, most_shapes):
        def run(*inputs):
            called.append((function, inputs))
            return function(*inputs)

        return run

    gains = read_hyperparameters(DEFAULT_HYPERPARAMETERS).loss_gains()
    loss = model.head.make_loss(LossSettings(gains, 64, fused=True)).compiled(recording)
    raw = model.train()(images)
    loss(raw, targets)
    assert [function.__name__ for function, _ in called] == ["on_device"]
    for function, inputs in (*called, (model, (images,))):
        dynamo.reset()
        found = dynamo.explain(function)(*inputs)
        assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons


@ON_TORCH
def test_fused_iou_can_be_traced_with_gradients():
    """As PyTorch 2.4 compiles it."""
    module = importlib.import_module("duet.backend.torch.fused")
    boxes = autograd.variable(np.random.default_rng(0).uniform(size=(2, 4, 8)))
    assert np.isfinite(ops.to_numpy(module._value_and_gradient(boxes * 1, 1e-7)[1])).all()


@ON_TORCH
@pytest.mark.parametrize(
    ("device", "no_graphs", "message"),
    [
        ("cuda:0", "", "compiled, as CUDA graphs"),
        ("cuda:0", "a reason", "compiled (no CUDA graphs: a reason)"),
        ("cpu", "not on a GPU", "compiled"),
    ],
)
def test_log_line_says_whether_a_compiled_step_uses_graphs(monkeypatch, device, no_graphs, message):
    compile_steps(monkeypatch, no_graphs)
    monkeypatch.setattr(backend.device, "compute_exactly", lambda device: None)
    monkeypatch.setattr(backend.device, "rounds_to_tf32", lambda device: False)
    precision = "float32" if device == "cpu" else "float32 (exact)"
    chosen = execution.choose_execution(device, "float32", "off", "contiguous", True, False)
    assert chosen.described == f"{precision}, contiguous, {message}"
    assert chosen.compiled and chosen.graphs is (no_graphs == "")
