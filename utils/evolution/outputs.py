"""What a search leaves: a table of its trials, a figure, and the best hyper-parameters.

Before: `search.py`, after each trial and at the end. After: the user, and `train.py --hyp`.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from utils.cli.document import as_document
from utils.cli.hyperparameters import Hyperparameters
from utils.errors import UserError
from utils.evolution.records import DONE, PRUNED, TrialRecord, best_of
from utils.files.atomic import atomic_text_file
from utils.files.project import from_here
from utils.files.yaml import yaml_text
from utils.report.plots.evolution import plot_evolution
from utils.screen.text import say

TABLE_FILE, FIGURE_FILE, BEST_FILE = "evolve.csv", "evolve.png", "hyp_evolve.yaml"


def write_table(folder: Path, hyp: Hyperparameters, records: Sequence[TrialRecord]) -> None:
    """Write a row for each trial that has epochs: figures, then all hyper-parameters.

    So has the public YOLOv5's evolve.csv; behind them come what this search knows of the trial.
    """
    shown = [record for record in records if record.state in (DONE, PRUNED) and record.figures]
    figures = list(shown[0].figures) if shown else []
    with atomic_text_file(folder / TABLE_FILE) as file:
        writer = csv.writer(file)
        names = [field.name for field in dataclasses.fields(hyp)]
        writer.writerow([*figures, *names, "trial", "state", "fitness"])
        for record in shown:
            values = as_document(dataclasses.replace(hyp, **record.values))
            found = [_cell(record.figures.get(name, math.nan)) for name in figures]
            own = [record.number + 1, record.state, _cell(record.best)]
            writer.writerow([*found, *(_cell(values[name]) for name in names), *own])


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def conclude_search(folder: Path, hyp: Hyperparameters, records: Sequence[TrialRecord]) -> None:
    """Write what a search has found, and say it."""
    best = best_of(records)
    if best is None:
        raise UserError(f"--evolve: no trial has trained to its end; see {folder / 'trials'}")
    done = [record for record in records if record.state == DONE]
    begin = records[0]
    values = {name: [record.values[name] for record in done] for name in begin.values}
    plot_evolution(values, [record.best for record in done], folder / FIGURE_FILE)
    path = folder / BEST_FILE
    with atomic_text_file(path) as file:
        file.write(f"# fitness {best.best:.4f}: trial {best.number + 1} of {len(records)}; ")
        file.write(f"{begin.best:.4f} to begin with\n")
        file.write(yaml_text(as_document(dataclasses.replace(hyp, **best.values))))
    pruned = sum(record.state == PRUNED for record in records)
    say(
        f"best of {len(records)}: trial {best.number + 1} with fitness {best.best:.4f}; "
        f"the first trial had {begin.best:.4f}; pruned: {pruned}",
        f"its hyper-parameters are in {from_here(path)}; train with --hyp {from_here(path)}",
        f"all trials in {from_here(folder / TABLE_FILE)} and {from_here(folder / FIGURE_FILE)}",
    )
