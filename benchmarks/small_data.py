"""Two training recipes on small datasets, from the same weights: accuracy, and time to reach it.

    python -m benchmarks.small_data --weights yolov5n.pt --data mydata.yaml --epochs 30 30

Each run is train.py in a process of its own: for each seed the recipes of --hyp in turn, so that
they see the same load. The metrics are those of the best epoch, which best.safetensors holds. Give
the second recipe fewer epochs if its epochs take longer.
"""

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from benchmarks.side_by_side import NotMeasuredError
from duet.utils.cli.flags import from_one
from duet.utils.comparison.load import LoadWatch
from duet.utils.errors import UserError
from duet.utils.processes.command import run_command
from duet.utils.report.results import read_results

REACHED = (0.85, 0.88, 0.90)  # mAP50
AP50, AP = "metrics/mAP_0.5", "metrics/mAP_0.5:0.95"


class Trained(NamedTuple):
    """One training."""

    ap50: float  # of the best epoch
    ap: float  # mAP50-95 of the best epoch
    seconds: float  # of all epochs, with their validations
    seconds_to: list[float]  # until each of REACHED; inf if never


def train(command: Sequence[str]) -> list[dict[str, float]]:
    """Run train.py; return the rows of its results.csv.

    Raises:
        NotMeasuredError: its exit code was not 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "train.py", *command, "--project", folder, "--name", "run"]
        done = subprocess.run(line, capture_output=True, encoding="locale", check=False)
        if done.returncode != 0:
            ended = f"train.py {' '.join(command)} ended with {done.returncode}"
            raise NotMeasuredError(f"{ended}: {done.stderr.strip()}")
        return read_results(Path(folder) / "run" / "results.csv")[1]


def run(flags: argparse.Namespace, data: str, recipe: str, epochs: int, seed: int) -> Trained:
    """Train once and read results.csv; NotMeasuredError if train.py failed."""
    rows = train([
        "--hyp", recipe, "--data", data, "--weights", flags.weights, "--img", str(flags.img),
        "--batch", str(flags.batch), "--epochs", str(epochs), "--seed", str(seed), "--noplots",
        *flags.flags,
    ])  # fmt: skip
    spent = list(accumulate(row["seconds/epoch"] for row in rows))
    best = max(rows, key=lambda row: 0.1 * row[AP50] + 0.9 * row[AP])
    reached = [(row[AP50], seconds) for row, seconds in zip(rows, spent, strict=True)]
    seconds_to = [next((x for ap, x in reached if ap >= goal), math.inf) for goal in REACHED]
    return Trained(best[AP50], best[AP], spent[-1], seconds_to)


def mean_and_spread(values: Sequence[float]) -> str:
    """Return "mean (lowest to highest)"."""
    shown = (f"{x:.3f}" for x in (statistics.mean(values), min(values), max(values)))
    return "{} ({} to {})".format(*shown)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_data", description=__doc__)
    parser.add_argument("--data", nargs="+", default=["shapes"])
    parser.add_argument("--weights", required=True, help="to begin from; '' from scratch")
    parser.add_argument("--hyp", nargs="+", default=["scratch-low", "small"])
    parser.add_argument("--epochs", nargs="+", type=from_one, default=[30, 30], help="per recipe")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3])
    parser.add_argument("--img", type=from_one, default=320)
    parser.add_argument("--batch", type=from_one, default=16)
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="more of train.py")
    flags = parser.parse_args()
    if len(flags.epochs) != len(flags.hyp):
        raise UserError("--epochs: give one number per recipe of --hyp")
    print("| data | recipe | mAP50 | mAP50-95 | seconds | seconds to 0.85, 0.88, 0.90 |")
    print("|---|---|---|---|---|---|", flush=True)
    for data in flags.data:
        load = LoadWatch()
        runs: dict[str, list[Trained]] = {recipe: [] for recipe in flags.hyp}
        for seed in flags.seeds:
            for recipe, epochs in zip(flags.hyp, flags.epochs, strict=True):
                runs[recipe].append(run(flags, data, recipe, epochs, seed))
        for recipe, done in runs.items():
            ap50, ap, seconds, seconds_to = zip(*done, strict=True)
            reached = [f"{statistics.median(x):.0f}" for x in zip(*seconds_to, strict=True)]
            cells = [Path(data).stem, recipe, mean_and_spread(ap50), mean_and_spread(ap)]
            cells += [f"{statistics.mean(seconds):.0f}", ", ".join(reached)]
            print(f"| {' | '.join(cells)} |", flush=True)
        print(f"Other processes took {load.others()} cores meanwhile.", flush=True)


if __name__ == "__main__":
    run_command(main)
