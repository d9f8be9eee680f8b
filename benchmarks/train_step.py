"""Milliseconds of a training step, stage by stage: the plain path and each fast one.

    OMP_NUM_THREADS=2 python -m benchmarks.train_step --backend torch --device cpu

The plain path is eager and contiguous, in float32. Each candidate trains a model of its own, drawn
from one seed, on one batch. A step is forward, loss, backward, optimizer and EMA. Candidates take
turns, and each must give the plain path's losses to its tolerance before any is timed. Memory that
is freed stays with the process, as in train.py.
"""

import argparse
import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.side_by_side import Timing, choose_device, finish, new_parser, time_in_turns
from duet.backend import amp, autograd, device, ops
from duet.backend.checks import CPU
from duet.utils.cli.flags import from_one
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.comparison.settings import REFERENCE
from duet.utils.data.loading.batch import Batch, Targets
from duet.utils.memory import keep_freed_memory
from duet.utils.processes.command import run_command
from duet.utils.report.results import STAGES

# Of COCO: 7 objects an image, four images a mosaic, of which about half remain inside.
TARGETS_AN_IMAGE = 14
PLAIN = "plain"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Flags of train.py, and how far its losses may be from the plain path's, relative to them."""

    flags: tuple[str, ...]
    tolerance: float


# Rounding in another order over 24 layers; bfloat16 has 8 bits, float16 11.
CANDIDATES = {
    PLAIN: Candidate(("--layout", "contiguous"), 0.0),
    "channels-last": Candidate(("--layout", "channels-last"), 1e-4),
    "padded loss": Candidate(("--layout", "contiguous"), 1e-4),
    "bf16": Candidate(("--amp", "bf16"), 0.03),
    "fp16": Candidate(("--amp", "fp16"), 0.01),
    "compiled": Candidate(("--compile",), 1e-4),
    "compiled, no graphs": Candidate(("--compile",), 1e-4),
    "compiled, bf16": Candidate(("--compile", "--amp", "bf16"), 0.03),
}


def usable(names: list[str], chosen: str) -> dict[str, Candidate]:
    """Return the candidates asked for that backend and device support; print the others."""
    problems = {
        "channels-last": None if device.supports("channels_last") else "one layout only",
        "bf16": None if "bfloat16" in amp.supported(chosen) else "no bfloat16 there",
        "fp16": None if "float16" in amp.supported(chosen) else "no float16 there",
        "no graphs": "a CPU has no CUDA graphs" if chosen == CPU else None,
    }
    kept = {}
    for name in dict.fromkeys([PLAIN, *names]):
        reasons = [problem for part, problem in problems.items() if part in name and problem]
        if "compiled" in name and not reasons:
            reasons = [problem for problem in [autograd.compile_problem(chosen)] if problem]
        if reasons:
            print(f"{name}: left out, {reasons[0]}")
        else:
            kept[name] = CANDIDATES[name]
    return kept


def draw_batch(num_images: int, side: int, num_classes: int) -> Batch:
    """Draw noise, and boxes of all sizes anywhere in it."""
    random = np.random.Generator(np.random.Philox(0))
    count = TARGETS_AN_IMAGE * num_images
    size = np.exp(random.uniform(np.log(0.02), np.log(0.6), (count, 2)))
    boxes = np.concatenate((random.uniform(0.05, 0.95, (count, 2)), size), axis=1)
    return Batch(
        random.integers(0, 256, (num_images, 3, side, side), dtype=np.uint8),
        Targets(
            np.repeat(np.arange(num_images), TARGETS_AN_IMAGE),
            random.integers(0, num_classes, count),
            boxes.astype(np.float32),
        ),
        np.arange(num_images),
        (),
        np.arange(num_images),
    )


def start(name: str, candidate: Candidate, flags: argparse.Namespace, chosen: str) -> Any:
    """Build a new state of train.py that updates its weights at each batch."""
    from duet.models.detector import Detector
    from duet.models.graph import read_model_yaml
    from duet.models.training.start import build_state

    given = ["--cfg", str(flags.cfg), "--img", str(flags.img), "--batch", str(flags.batch)]
    # A GPU would choose a half precision and fused paths, for the plain path too.
    given += ["--amp", "off", *REFERENCE]
    config = parse_train_flags([*given, *candidate.flags])
    model = Detector(read_model_yaml(str(flags.cfg)))
    model.initialize(seed=0)
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    # An epoch so long that the warm-up, in which each batch is an update, does not end.
    state = build_state(config, hyp, model, batches=10**6, device=chosen)
    if name == "padded loss":
        state.step_loss = state.loss.compiled(lambda cost, most_shapes: cost)
    if name == "compiled, no graphs":
        one_by_one = dataclasses.replace(state.execution, graphs=False)
        state.forward = one_by_one.forward_of(state.parallel)
        state.step_loss = one_by_one.loss_of(state.loss)
    return state


def require_equal_losses(losses: Mapping[str, np.ndarray], all_of: Mapping[str, Candidate]) -> None:
    """Raise SystemExit if a candidate's losses differ too much from the plain path's."""
    for name, found in losses.items():
        error = float(np.abs(found / losses[PLAIN] - 1).max())
        if not error <= all_of[name].tolerance:
            raise SystemExit(
                f"{name}: losses differ by {error:.1e}, more than {all_of[name].tolerance:.0e}: "
                "the times compare unequal work"
            )


def stage_rows(timers: Mapping[str, Any], steps: int) -> list[str]:
    """Return mean milliseconds of each stage, a line for each candidate; timers: StageTimer."""
    stages = [stage for stage in STAGES if stage not in ("data_wait", "validation")]
    lines = [f"{'milliseconds a stage, mean':<30}" + "".join(f"{stage:>11}" for stage in stages)]
    for name, timer in timers.items():
        cells = (f"{1000 * timer.state()[stage] / steps:>11.2f}" for stage in stages)
        lines.append(f"{name:<30}" + "".join(cells))
    return lines


def measure(flags: argparse.Namespace, chosen: str) -> list[Timing]:
    """Time whole steps of every usable candidate, and print their stages."""
    from duet.models.graph import read_model_yaml
    from duet.models.training.step import train_step
    from duet.models.training.step_watch import StageTimer

    batch = draw_batch(flags.batch, flags.img, read_model_yaml(str(flags.cfg)).num_classes)
    candidates = usable(flags.only, chosen)
    losses, timers, runs = {}, {}, {}
    for name, candidate in candidates.items():
        state = start(name, candidate, flags, chosen)
        terms = train_step(state, batch, StageTimer(chosen))
        losses[name] = np.array([float(ops.to_numpy(term)) for term in terms.by_name.values()])
        timers[name] = StageTimer(chosen)
        runs[name] = partial(train_step, state, batch, timers[name])
    require_equal_losses(losses, candidates)
    timings = time_in_turns(
        f"{flags.batch} x {flags.img} px", runs, chosen, flags.repeats, flags.warm_up
    )
    print("\n".join(stage_rows(timers, flags.repeats + flags.warm_up)))
    return timings


def main() -> None:
    parser = new_parser("train_step", "Milliseconds of a training step.", repeats=10)
    parser.add_argument("--cfg", type=Path, default=Path("models/yolov5n.yaml"))
    parser.add_argument("--img", type=from_one, default=320, help="side of the images, pixels")
    parser.add_argument("--batch", type=from_one, default=16, help="images per step")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before the timed ones")
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, metavar="NAME",
        default=list(CANDIDATES), help="in addition to the plain path")  # fmt: skip
    flags = parser.parse_args()
    chosen = choose_device(flags)
    if chosen == CPU:
        keep_freed_memory()
    finish(flags, measure(flags, chosen), chosen)


if __name__ == "__main__":
    run_command(main)
