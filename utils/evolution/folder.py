"""The folder of a search: a new one, or that of the search which the same command began.

Before: flags. After: `records.py` and `outputs.py` read and write there.
"""

from __future__ import annotations

import dataclasses
import logging
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utils.cli.document import as_document, run_settings
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import TrainConfig
from utils.errors import UserError
from utils.evolution.outputs import BEST_FILE
from utils.evolution.ranges import Range
from utils.evolution.records import RUNNING, read_records
from utils.files.project import from_here
from utils.files.yaml import read_yaml, write_yaml
from utils.state.folder import create_run_folder
from utils.state.lock import RunLock
from utils.state.resume import FREE

PROJECT_FOLDER = Path("runs/evolve")  # in place of --project's default
# Settings that may change in the middle of a search; hyp.yaml has the numbers of these.
CHANGEABLE = FREE | {"evolve", "hyp", "override"}

log = logging.getLogger("evolve")


def open_folder(
    config: TrainConfig, hyp: Hyperparameters, ranges: Mapping[str, Range], lock: RunLock
) -> Path:
    """Return the folder of the unfinished search of these settings, or a new one; it is locked.

    Raises:
        UserError: another process writes there; --exist-ok names the folder of another search.
    """
    default = next(field.default for field in dataclasses.fields(config) if field.name == "project")
    project = PROJECT_FOLDER if config.project == default else config.project
    for folder in _existing(project, config.name):
        if _is_unfinished(folder, config, hyp, ranges):
            lock.take(folder)
            log.info("going on with the search in %s", from_here(folder))
            return folder
    folder = create_run_folder(project, config.name, config.exist_ok)
    lock.take(folder)
    if read_records(folder, ranges):
        raise UserError(f"--exist-ok: {folder} has another search; give another --name")
    (folder / "trials").mkdir(exist_ok=True)
    write_yaml(folder / "opt.yaml", run_settings(config))
    write_yaml(folder / "hyp.yaml", as_document(hyp))
    log.info("a new search in %s; its trainings print into trials/*.log", from_here(folder))
    return folder


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


def _is_unfinished(
    folder: Path, config: TrainConfig, hyp: Hyperparameters, ranges: Mapping[str, Range]
) -> bool:
    """Return whether a folder has a search of these settings with trials left to do."""
    if _settings(folder / "opt.yaml") != _fixed(run_settings(config)):
        return False
    if _settings(folder / "hyp.yaml") != _fixed(as_document(hyp)):
        return False
    records = read_records(folder, ranges)
    ended = sum(record.state != RUNNING for record in records)
    return ended < config.evolve or not (folder / BEST_FILE).exists()


def _settings(path: Path) -> Mapping[str, Any] | None:
    """Return what a file says of settings that stay the same; None if it cannot be read."""
    try:
        return _fixed(read_yaml("--evolve", path, ""))
    except UserError:
        return None


def _fixed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in settings.items()
        if name not in CHANGEABLE
    }
