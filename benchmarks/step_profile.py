"""What a device does in one training step: operations by its time, kernels launched, idle time.

    python -m benchmarks.step_profile --device 0

The step is that of `step_table.py`. Several steps that follow each other are profiled, and what is
printed is one step of them. A profiler slows the host down: where the device waits for the host, it
idles less without one.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

from collections.abc import Mapping
from typing import Any

import backend
from backend import amp
from backend.checks import CPU
from backend.device_profile import DeviceProfile
from benchmarks.side_by_side import (
    NotMeasuredError,
    choose_device,
    machine,
    new_parser,
    write_json,
)
from benchmarks.step_table import EXECUTIONS, PRECISIONS, Cell, build_step
from utils.cli.flags import from_one
from utils.comparison.words import number
from utils.processes.command import run_command
from utils.processes.host_memory import keep_freed_memory

TOP = 15  # operations in the table
WARM_UP = 3
OPERATIONS = "operations"  # what a CPU is profiled by: it is host and device at once


def profile_steps(cell: Cell, device: str, steps: int) -> DeviceProfile:
    """Return what the device does in so many steps.

    Raises:
        NotMeasuredError: the framework cannot tell, or the step cannot be run.
    """
    step = build_step(cell, device)
    for _ in range(WARM_UP):
        step()

    def run() -> None:
        for _ in range(steps):
            step()

    backend.device.profile(step, device)  # the first one starts the profiler
    found = backend.device.profile(run, device)
    if found is None:
        raise NotMeasuredError(f"{backend.use()} has no profiler of {device}")
    return found


def one_step(cell: Cell, found: DeviceProfile, steps: int, device: str) -> Mapping[str, Any]:
    """Return a profile as `results.py` reads it: of one step out of several."""
    longest = sorted(found.seconds.items(), key=lambda item: item[1], reverse=True)[:TOP]
    return {
        "case": f"{cell.case}, {cell.name}",
        "launched": round(found.launched / steps),
        "kind": OPERATIONS if device == CPU else "kernels and copies",
        "busy_ms": 1000 * found.busy_seconds / steps,
        "span_ms": 1000 * found.span_seconds / steps,
        "operations": [
            {"name": name, "milliseconds": 1000 * seconds / steps} for name, seconds in longest
        ],
    }


def in_words(profile: Mapping[str, Any]) -> str:
    """Return what was launched in which time, and which part of it was spent on nothing of that."""
    busy, span = profile["busy_ms"], profile["span_ms"]
    rest = f"{100 * (1 - busy / span):.0f} % of it" if span else "it"
    launched = f"{profile['launched']} {profile['kind']} in {number(span)} ms"
    idle = "Python has" if profile["kind"] == OPERATIONS else "the device idles"
    return f"{launched}; {idle} {rest}"


def print_profile(profile: Mapping[str, Any]) -> None:
    print(f"{profile['case']}: {in_words(profile)}")
    for row in profile["operations"]:
        print(f"{row['milliseconds']:>10.3f} ms  {row['name']}")


def main() -> None:
    parser = new_parser("step_profile", "What a device does in a training step.", repeats=3)
    add = parser.add_argument
    add("--model", default="n", metavar="M", help="n, s, m, l, x, or a model YAML")
    add("--batch", type=from_one, default=16, metavar="N")
    add("--img", type=from_one, default=640, metavar="PX")
    add("--precision", choices=PRECISIONS, help="default: bfloat16 if the device prefers it")
    add("--execution", choices=EXECUTIONS, default="eager")
    flags = parser.parse_args()
    device = choose_device(flags)
    if device == CPU:
        keep_freed_memory()
    preferred = "bfloat16" if amp.preferred(device) == "bfloat16" else "float32"
    precision = flags.precision or preferred
    cell = Cell(flags.model, flags.batch, flags.img, precision, flags.execution)
    profiles, left_out = [], []
    try:
        found = profile_steps(cell, device, flags.repeats)
        profiles = [one_step(cell, found, flags.repeats, device)]
        print_profile(profiles[0])
    except NotMeasuredError as error:
        left_out = [{"case": f"{cell.case}, {cell.name}", "reason": str(error)}]
        print(f"not measured: {error}")
    if flags.json is not None:
        more = {"profiles": profiles, "left_out": left_out}
        write_json(flags.json, machine(device), [], device, **more)


if __name__ == "__main__":
    run_command(main)
