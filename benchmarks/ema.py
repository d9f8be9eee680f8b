"""Milliseconds to update the EMA of a model.

    OMP_NUM_THREADS=2 python -m benchmarks.ema --backend torch --device cpu

The reference multiplies and adds tensor by tensor and collects the tensors again at each update, as
a simple training loop does. `plain` is this project's update without --multi_tensor_optimizer: it
collects them once. `multi_tensor` is the update with it, model and EMA packed. Each has a model of
its own, which the others push out of the processor's cache, as a forward and backward pass would.
All must give the same EMA.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.side_by_side import Run, choose_device, finish, new_parser, time_in_turns
from duet.backend import autograd, nn, ops
from duet.utils.processes.command import run_command

TOLERANCE = 1e-5  # rounding of a few updates of float32 values up to 10


def loop(ema: Any, model: Any, decay: Callable[[int], float]) -> Run:
    """Return the public update: ema = decay * ema + (1 - decay) * value, tensor by tensor."""
    updates = 0

    def run() -> None:
        nonlocal updates
        updates += 1
        fraction = decay(updates)
        values = nn.state_tensors(model)
        with autograd.no_grad():
            for name, kept in nn.state_tensors(ema).items():
                if ops.dtype_of(kept).startswith("float"):
                    kept.mul_(fraction).add_(values[name], alpha=1 - fraction)

    return run


def build_candidates(cfg: Path, device: str) -> tuple[dict[str, Run], dict[str, Any]]:
    """Return the updates, and the EMA that each changes."""
    from duet.models.detector import Detector
    from duet.models.graph import read_model_yaml
    from duet.models.training.ema import ModelEMA, decay_after

    models = [Detector(read_model_yaml(cfg, 80)) for _ in range(3)]
    for model in models:
        model.initialize(0)
        nn.place(model, device, "float32")
    plain, fast = ModelEMA(models[1]), ModelEMA(models[2], together=True)
    looped = nn.frozen_copy(models[0])
    # EMAs that differ from the weights, by up to 1.
    changed = {
        name: array + 1 if array.dtype == np.float32 else array
        for name, array in nn.state_arrays(looped).items()
    }
    for ema in (looped, plain.model, fast.model):
        nn.load_state_arrays(ema, changed)
    runs: dict[str, Run] = {
        "loop, collected anew": loop(looped, models[0], decay_after),
        "plain": lambda: plain.update(models[1]),
        "multi_tensor": lambda: fast.update(models[2]),
    }
    return runs, dict(zip(runs, (looped, plain.model, fast.model), strict=True))


def require_equal_averages(runs: dict[str, Run], averages: dict[str, Any]) -> None:
    """Raise SystemExit if three updates give different EMAs."""
    for run in runs.values():
        for _ in range(3):
            run()
    wanted, *others = (nn.state_arrays(average) for average in averages.values())
    for name, array in wanted.items():
        if not all(np.allclose(other[name], array, TOLERANCE, TOLERANCE) for other in others):
            raise SystemExit(f"the EMAs of {name} differ: the times compare unequal work")


def main() -> None:
    parser = new_parser("ema", "Milliseconds to update the EMA of a model.", repeats=50)
    parser.add_argument("--cfg", type=Path, default=Path("models/yolov5s.yaml"))
    flags = parser.parse_args()
    device = choose_device(flags)
    runs, averages = build_candidates(flags.cfg, device)
    require_equal_averages(runs, averages)
    finish(flags, time_in_turns(flags.cfg.stem, runs, device, flags.repeats), device)


if __name__ == "__main__":
    run_command(main)
