"""Run all benchmarks of this folder, each as a process of its own, JSON into runs/bench.

    python -m benchmarks --device cpu
    python -m benchmarks --device 0

Sizes are those of SMALL, so that all end within about ten minutes on two cores. With a GPU those of
CPU_ALONE run on the CPU all the same, and the table of epochs by model, batch, precision and
compilation follows. A script that fails is named at the end, with exit code 1; the others run all
the same.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import backend
from backend.select import FRAMEWORKS
from utils.cli.flags import new_parser
from utils.processes.command import run_command

FOLDER = Path(__file__).parent
# `scaling` writes tables of the documentation; its own parts are beside it.
SCALING = {
    "scaling", "scaling_measure", "scaling_model", "scaling_rank", "scaling_tables", "scaling_words"
}  # fmt: skip
# `audit`, `ring` and `shared_lines` time nothing, `limits` no fast path; `audit`, `formats`,
# `serve` and `val_host` need weights and data, `beside` another trainer.
NO_BENCHMARK = {
    "__init__", "__main__", "audit", "beside", "beside_work", "formats", "limits", "paste_and_warp",
    "ring", "serve", "serve_client", "shared_lines", "side_by_side", "val_host", *SCALING,
}  # fmt: skip
# Flags that make a script end sooner than its defaults.
SMALL: dict[str, Sequence[str]] = {
    "detect": ("--img", "320", "--images", "16", "--repeats", "3"),
    "metric": ("--images", "500", "--repeats", "3"),
    "epoch": ("--epochs", "2", "--img", "160"),
    "scan": ("--images", "2000", "--samples", "100000"),
    "tiles": ("--grid", "3", "--images", "9", "--repeats", "1"),
    "waiting": ("--busy", "0", "--rounds", "1"),
}
NUMPY_ALONE = {"metric", "scan"}  # take no --backend and --device
CPU_ALONE = {"loader", "nms", "threads", "waiting"}  # refuse another device
ONE_CORE = {"loader", "metric", "nms"}  # their figures are stated for one core
TABLE = ("--table", "--epochs", "2", "--img", "640")


def names() -> list[str]:
    """Return the names of the scripts of this folder, the slow ones last."""
    found = {path.stem for path in FOLDER.glob("*.py")} - NO_BENCHMARK
    return sorted(found, key=lambda name: (name in ("val", "epoch", "waiting"), name))


def command(name: str, flags: argparse.Namespace, device: str) -> list[str]:
    """Return the command line of one script, with its flags."""
    line = [sys.executable, "-m", f"benchmarks.{name}", *SMALL.get(name, ())]
    if name not in NUMPY_ALONE:
        line += shared(flags, "cpu" if name in CPU_ALONE else device)
    return [*line, "--json", str(flags.output / f"{name}.json")]


def shared(flags: argparse.Namespace, device: str) -> list[str]:
    return ["--backend", backend.use(), "--device", device]


def run(line: Sequence[str], one_core: bool) -> bool:
    """Print a command and run it; return whether it ended well."""
    print(f"\n$ {' '.join(line[1:])}", flush=True)
    environment = {**os.environ, **({"OMP_NUM_THREADS": "1"} if one_core else {})}
    return subprocess.run(line, env=environment, check=False).returncode == 0


def main() -> None:
    parser = new_parser("python -m benchmarks", "All benchmarks.")
    add = parser.add_argument
    add("--backend", choices=FRAMEWORKS)
    add("--device", default="cpu", help="cpu, 0, cuda:0")
    add("--output", type=Path, default=Path("runs/bench"), metavar="P", help="folder of the JSON")
    add("--only", nargs="+", choices=names(), default=names(), metavar="NAME")
    flags = parser.parse_args()
    backend.use(flags.backend)
    device = backend.device.resolve(flags.device)
    flags.output.mkdir(parents=True, exist_ok=True)
    done = {name: run(command(name, flags, device), name in ONE_CORE) for name in flags.only}
    if device != "cpu" and "epoch" in flags.only:
        output = ("--json", str(flags.output / "epoch_table.json"))
        line = [sys.executable, "-m", "benchmarks.epoch", *TABLE, *shared(flags, device), *output]
        done["epoch --table"] = run(line, one_core=False)
    failed = [name for name, ended_well in done.items() if not ended_well]
    print(f"\nresults in {flags.output}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    run_command(main)
