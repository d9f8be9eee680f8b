"""The folder of a search: found or made, and what the search leaves in it."""

from __future__ import annotations

import csv
import dataclasses
import logging
import math
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utils.cli.document import as_document, run_settings
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import TrainConfig
from utils.errors import UserError
from utils.evolution.ranges import Range
from utils.evolution.study import FIGURES, SearchStudy
from utils.files.atomic import atomic_text_file
from utils.files.project import from_here
from utils.files.yaml import read_yaml, write_yaml, yaml_text
from utils.report.plots.results import plot_evolution
from utils.screen.text import say
from utils.state.folder import create_run_folder
from utils.state.lock import RunLock
from utils.state.resume import FREE

PROJECT_FOLDER = Path("runs/evolve")  # in place of --project's default
# Settings that may change in the middle of a search; hyp.yaml has the numbers of these.
CHANGEABLE = FREE | {"evolve", "hyp", "override"}
STUDY_FILE = "search.journal"
TABLE_FILE, FIGURE_FILE, BEST_FILE = "evolve.csv", "evolve.png", "hyp_evolve.yaml"
WORDS = {"COMPLETE": "done", "PRUNED": "pruned"}

log = logging.getLogger("evolve")


def open_folder(
    config: TrainConfig, hyp: Hyperparameters, ranges: Mapping[str, Range], lock: RunLock
) -> tuple[Path, SearchStudy]:
    """Return the folder of the unfinished search of these settings, or a new one; it is locked.

    Raises:
        UserError: another process writes there; --exist-ok names the folder of another search; the
            study cannot be read.
    """
    begin = {name: getattr(hyp, name) for name in ranges}

    def study_of(folder: Path) -> SearchStudy:
        path = Path(config.storage) if config.storage else folder / STUDY_FILE
        return SearchStudy(path, begin, ranges, config.epochs, config.seed)

    default = next(field.default for field in dataclasses.fields(config) if field.name == "project")
    project = PROJECT_FOLDER if config.project == default else config.project
    for folder in _existing(project, config.name):
        if _has_settings(folder, config, hyp):
            lock.take(folder)
            study = study_of(folder)
            ended = len(study.trials("COMPLETE", "PRUNED"))
            if ended < config.evolve or not (folder / BEST_FILE).exists():
                log.info("going on with the search in %s", from_here(folder))
                return folder, study
    folder = create_run_folder(project, config.name, config.exist_ok)
    lock.take(folder)
    if (folder / STUDY_FILE).exists():
        raise UserError(f"--exist-ok: {folder} has another search; give another --name")
    (folder / "trials").mkdir(exist_ok=True)
    write_yaml(folder / "opt.yaml", run_settings(config))
    write_yaml(folder / "hyp.yaml", as_document(hyp))
    log.info("a new search in %s; its trainings print into trials/*.log", from_here(folder))
    return folder, study_of(folder)


def command_to_go_on() -> str:
    """Return the command line of this process."""
    return shlex.join([sys.executable, *sys.argv])


def _existing(project: Path, name: str) -> list[Path]:
    """Return the folders called name, name2, name3, ...; the newest first."""
    found = [
        (int(suffix or 1), folder)
        for folder in project.glob("*")
        if folder.name.startswith(name)
        and (not (suffix := folder.name.removeprefix(name)) or suffix.isdecimal())
    ]
    return [folder for _, folder in sorted(found, reverse=True)]


def _has_settings(folder: Path, config: TrainConfig, hyp: Hyperparameters) -> bool:
    """Return whether a folder has a search of these settings."""
    wanted = {"opt.yaml": run_settings(config), "hyp.yaml": as_document(hyp)}
    try:
        return all(
            _fixed(read_yaml("--evolve", folder / name, "")) == _fixed(settings)
            for name, settings in wanted.items()
        )
    except UserError:
        return False


def _fixed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in settings.items()
        if name not in CHANGEABLE
    }


def write_table(folder: Path, hyp: Hyperparameters, study: SearchStudy) -> None:
    """Write a row for each trial that has epochs: figures, then all hyper-parameters.

    So has the public YOLOv5's evolve.csv; behind them come what this search knows of the trial.
    """
    shown = [trial for trial in study.trials(*WORDS) if trial.user_attrs.get(FIGURES)]
    figures = list(shown[0].user_attrs[FIGURES]) if shown else []
    with atomic_text_file(folder / TABLE_FILE) as file:
        writer = csv.writer(file)
        names = [field.name for field in dataclasses.fields(hyp)]
        writer.writerow([*figures, *names, "trial", "state", "fitness"])
        for trial in shown:
            values = as_document(dataclasses.replace(hyp, **trial.params))
            found = [_cell(trial.user_attrs[FIGURES].get(name, math.nan)) for name in figures]
            best = max(trial.intermediate_values.values(), default=math.nan)
            own = [trial.number + 1, WORDS[trial.state.name], _cell(best)]
            writer.writerow([*found, *(_cell(values[name]) for name in names), *own])


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def conclude_search(folder: Path, hyp: Hyperparameters, study: SearchStudy) -> None:
    """Write what a search has found, and report it."""
    best, done = study.best(), study.trials("COMPLETE")
    if best is None:
        raise UserError(f"--evolve: no trial has trained to its end; see {folder / 'trials'}")
    values = {name: [trial.params[name] for trial in done] for name in best.params}
    plot_evolution(values, [trial.value for trial in done], folder / FIGURE_FILE)
    write_table(folder, hyp, study)
    pruned, begin = len(study.trials("PRUNED")), done[0]
    number, path = len(done) + pruned, folder / BEST_FILE
    with atomic_text_file(path) as file:
        file.write(f"# fitness {best.value:.4f}: trial {best.number + 1} of {number}; ")
        file.write(f"{begin.value:.4f} to begin with\n")
        file.write(yaml_text(as_document(dataclasses.replace(hyp, **best.params))))
    say(
        f"best of {number}: trial {best.number + 1} with fitness {best.value:.4f}; "
        f"the first trial had {begin.value:.4f}; pruned: {pruned}",
        f"its hyper-parameters are in {from_here(path)}; train with --hyp {from_here(path)}",
        f"all trials in {from_here(folder / TABLE_FILE)} and {from_here(folder / FIGURE_FILE)}",
    )
