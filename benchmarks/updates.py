"""Milliseconds of an optimizer step on all weights of a model, and of the update of its EMA.

    OMP_NUM_THREADS=2 python -m benchmarks.updates --backend torch --device cpu

The reference is the plain update, `multi_tensor` that of --multi_tensor_optimizer. Both have models
of their own, which push each other out of the processor's cache as a forward and backward pass
would, and must give the same weights and EMA.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.side_by_side import Run, choose_device, finish, keep, new_parser, time_in_turns
from duet.backend import autograd, multi_tensor, nn, ops, optim
from duet.backend.contract import Tensor
from duet.utils.cli.train_config import OPTIMIZERS
from duet.utils.processes.command import run_command

RATES, MOMENTUM, DECAY = (1e-4, 1e-4, 1e-4), 0.937, 5e-4
TOLERANCE = 1e-5  # rounding of three updates; that of Adam is the largest, 1e-3 of a step of 1e-4


def build_model(cfg: Path, device: str) -> Any:
    """Build a model with a gradient for every weight."""
    from duet.models.detector import Detector
    from duet.models.graph import read_model_yaml

    model = Detector(read_model_yaml(cfg, 80))
    model.initialize(0)
    nn.place(model, device, "float32")
    model.train()
    random = np.random.Generator(np.random.Philox(0))
    images = random.uniform(0, 1, (2, 3, 64, 64)).astype(np.float32)
    levels = model(ops.tensor(images, device))
    backward(ops.sum(ops.stack([ops.mean(level * level) for level in levels])))
    return model


def backward(total: Tensor) -> None:
    """Add the gradients of a number, 0-d, to those of the weights."""
    terms, stages = SimpleNamespace(total=total), lambda stage: nullcontext()
    autograd.value_and_backward(lambda images: images, lambda *_: terms, total, None, stages)


def require_equal(name: str, plain: Mapping[str, np.ndarray], fast: Mapping[str, Any]) -> None:
    """Raise SystemExit if both ways give different values."""
    for key, array in plain.items():
        if not np.allclose(fast[key], array, TOLERANCE, TOLERANCE):
            raise SystemExit(f"{name} gives other values of {key}: the times compare unequal work")


def optimizer_steps(name: str, cfg: Path, device: str) -> dict[str, Run]:
    """Return the step of each, after a check that three steps give the same weights."""
    from duet.models.training.optimizer import parameter_groups

    runs, weights = {}, []
    # Of one pass: a GPU may add up another one in another order. And given before each step, since
    # the plain one may work in them.
    passed = dict(nn.named_parameters(build_model(cfg, device)))
    gradients = {name: ops.to_numpy(x.grad) for name, x in passed.items()}
    for namespace_name, namespace in (("plain", optim), ("multi_tensor", multi_tensor)):
        model = build_model(cfg, device)
        optimizer = getattr(namespace, name)(parameter_groups(model, DECAY))
        for _ in range(3):
            optimizer.zero_grad()
            terms = [
                ops.sum(x * ops.tensor(gradients[key], device))
                for key, x in nn.named_parameters(model)
            ]
            backward(ops.sum(ops.stack(terms)))
            optimizer.step(RATES, MOMENTUM)
        weights.append(nn.state_arrays(model))
        runs[namespace_name] = lambda optimizer=optimizer: optimizer.step(RATES, MOMENTUM)
    require_equal(name, *weights)
    return runs


def ema_updates(name: str, cfg: Path, device: str) -> dict[str, Run]:
    """Return the update of each, after a check that three give the same EMA."""
    from duet.models.training.optimizer import ModelEMA

    runs: dict[str, Run] = {}
    averages = []
    for together in (False, True):
        model = build_model(cfg, device)
        ema = ModelEMA(model, together)
        arrays = nn.state_arrays(ema.model).items()  # an EMA that differs from the weights, by 1
        nn.load_state_arrays(ema.model, {x: y + (y.dtype == np.float32) for x, y in arrays})
        run = runs["multi_tensor" if together else "plain"] = lambda ema=ema, x=model: ema.update(x)
        for _ in range(3):
            run()
        averages.append(nn.state_arrays(ema.model))
    require_equal(name, *averages)
    return runs


def main() -> None:
    parser = new_parser("updates", "Milliseconds of an optimizer step and an EMA.", repeats=30)
    parser.add_argument("--cfg", type=Path, default=Path("models/yolov5s.yaml"))
    flags = parser.parse_args()
    device = choose_device(flags)
    kinds: dict[str, Callable[..., dict[str, Run]]] = dict.fromkeys(OPTIMIZERS, optimizer_steps)
    timings = []
    for name, build in {**kinds, "EMA": ema_updates}.items():
        runs = build(name, flags.cfg, device)
        timings += time_in_turns(f"{flags.cfg.stem}, {name}", runs, device, flags.repeats)
        keep(flags, timings, device)
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
