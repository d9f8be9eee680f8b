"""Carry out one run of a cell and keep its record, in the folder of the comparison.

Before: `plan.py` and `settings.py`. After: `document.py` reads the records.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from utils.comparison.load import LoadWatch
from utils.comparison.measured import (
    ArrivingRows,
    Document,
    add_what_train_wrote,
    describe_run,
    failed_run,
)
from utils.comparison.plan import VARIANTS, Turn
from utils.comparison.runner import run_process
from utils.comparison.settings import External, Settings
from utils.files.atomic import atomic_text_file, remove_unfinished
from utils.files.json import read_json
from utils.files.models import find_model
from utils.files.project import PROJECT, from_here
from utils.files.regular import read_bytes
from utils.state.checkpoint import MAX_WEIGHTS_BYTES
from utils.state.lock import RunLock

RUNS = "runs"


def record_path(folder: Path, turn: Turn) -> Path:
    return folder / RUNS / f"{turn.name}.json"


def load_record(folder: Path, turn: Turn) -> Document | None:
    """Return the record of a successful run; None if it has to run (again)."""
    path = record_path(folder, turn)
    if not path.exists():
        return None
    try:
        record = read_json(path)
    except (OSError, ValueError):
        return None
    good = isinstance(record, dict) and record.get("failure", "damaged") is None
    return record if good else None


def carry_out(settings: Settings, turn: Turn, folder: Path, watch: Callable[[], None]) -> Document:
    """Run a cell once, and write its record to disk before returning it.

    Args:
        watch: called again and again while the cell runs.
    """
    run_folder = folder / RUNS / turn.name
    if run_folder.exists():  # of an aborted attempt
        with RunLock() as lock:
            lock.take(run_folder)  # its process may not have ended yet
            shutil.rmtree(run_folder, ignore_errors=True)
    run_folder.mkdir(parents=True)
    remove_unfinished(run_folder.parent)
    load = LoadWatch()
    if turn.cell.external:
        record = _run_external(settings, turn, run_folder, watch)
    else:
        record = _run_train(settings, turn, run_folder, watch)
    record["load"] = load.document()
    with atomic_text_file(record_path(folder, turn)) as file:
        json.dump(record, file, indent=1)
    return record


def _run_train(
    settings: Settings, turn: Turn, run_folder: Path, watch: Callable[[], None]
) -> Document:
    command = train_command(settings, turn, run_folder)
    log = run_folder.with_name(f"{run_folder.name}.log")
    limit, devices = 60 * settings.timeout_minutes, devices_of(settings)
    try:
        outcome = run_process(command, log, limit, devices, (watch,))
    except OSError as error:
        return failed_run(turn, command, str(error))
    record = describe_run(turn, command, outcome, log, [])
    if record["failure"] is None:
        add_what_train_wrote(record, turn, run_folder, settings.warm_up_epochs, log)
    if record["work"] is not None:
        record["work"] |= {"code": code_digest(), **input_digests(settings)}
    shutil.rmtree(run_folder / "weights", ignore_errors=True)  # of no use, and large
    return record


def _run_external(
    settings: Settings, turn: Turn, run_folder: Path, watch: Callable[[], None]
) -> Document:
    external = next(e for e in settings.externals if e.name == turn.cell.side)
    command = external_command(settings, external, turn, run_folder)
    log = run_folder.with_name(f"{run_folder.name}.log")
    results = _filled([external.results], settings, turn, run_folder)[0]
    rows = ArrivingRows(Path(results) if results else None)
    limit, devices = 60 * settings.timeout_minutes, devices_of(settings)
    try:
        outcome = run_process(command, log, limit, devices, (rows, watch))
    except OSError as error:
        return failed_run(turn, command, str(error))
    record = describe_run(turn, command, outcome, log, rows.epochs(settings.warm_up_epochs))
    if results and record["failure"] is None and not record["epochs"]:
        record["notes"] = [
            f"fewer than two rows appeared in {results}, so its epochs could not be timed"
        ]
    return record


def train_command(settings: Settings, turn: Turn, run_folder: Path) -> list[str]:
    """Return the command of train.py as a user would write it."""
    cell = turn.cell
    programs = Path(settings.pythons[cell.side]), PROJECT / "train.py"
    command = [*map(str, map(from_here, programs)), "--backend", cell.side]
    command += ["--data", settings.data, "--cfg", settings.cfg, "--weights", settings.weights]
    if settings.train_part:
        command += ["--split", str(settings.train_part)]
    if settings.hyp:
        command += ["--hyp", settings.hyp]
    command += ["--img", str(settings.image_size), "--batch", str(cell.batch)]
    command += ["--epochs", str(settings.total_epochs), "--seed", str(settings.seed)]
    command += ["--workers", str(settings.workers), "--device", settings.device]
    if settings.nproc > 1:
        command += ["--nproc", str(settings.nproc)]
    # The layout and the precision that both backends have; a variant may ask for others.
    command += ["--layout", "contiguous", "--amp", "off"]
    command += ["--project", str(from_here(run_folder.parent)), "--name", run_folder.name]
    return [*command, "--exist-ok", *VARIANTS[cell.variant].flags]


def devices_of(settings: Settings) -> str:
    """Return the devices of a run: without --device the first GPUs, one for each process."""
    return settings.device or ",".join(map(str, range(settings.nproc)))


def external_command(
    settings: Settings, external: External, turn: Turn, run_folder: Path
) -> list[str]:
    """Return the external trainer's command with the values of the cell filled in."""
    return _filled(external.command, settings, turn, run_folder)


def _filled(words: Sequence[str], settings: Settings, turn: Turn, run_folder: Path) -> list[str]:
    values = {
        "{batch}": str(turn.cell.batch),
        "{img}": str(settings.image_size),
        "{epochs}": str(settings.total_epochs),
        "{device}": settings.device,
        "{nproc}": str(settings.nproc),
        "{folder}": str(run_folder),
    }
    filled = []
    for word in words:
        for name, value in values.items():
            word = word.replace(name, value)
        filled.append(word)
    return filled


def input_digests(settings: Settings) -> dict[str, str]:
    """Return digests of the files of --cfg and --weights; the settings hold only their names."""
    files = {"cfg_sha1": find_model(settings.cfg), "weights_sha1": Path(settings.weights)}
    return {
        name: hashlib.sha1(read_bytes(path, MAX_WEIGHTS_BYTES), usedforsecurity=False).hexdigest()
        for name, path in files.items()
        if path.is_file()
    }


def code_digest() -> str:
    """Return a digest of the source of training: a resumed comparison must not mix two versions."""
    digest = hashlib.sha1(usedforsecurity=False)
    folders = [PROJECT / name for name in ("backend", "models", "utils")]
    paths = [
        PROJECT / "train.py",
        PROJECT / "val.py",
        *(p for f in folders for p in f.rglob("*.py")),
    ]
    for path in sorted(paths):
        if "comparison" not in path.parts:
            digest.update(read_bytes(path))
    return digest.hexdigest()
