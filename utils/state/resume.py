"""Find the state named by --resume, and the settings for the rest of the run."""

import contextlib
import dataclasses
import logging
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

from duet.backend.processes import this_process
from duet.utils.cli.flags import FlagValues
from duet.utils.cli.hyperparameters import Hyperparameters, read_hyperparameters
from duet.utils.cli.run_config import as_document, plain
from duet.utils.cli.train_config import (
    AUTO,
    AUTO_BATCH,
    FREE,
    NEWEST,
    PROCESS_SETTINGS,
    TrainConfig,
    read_train_flags,
)
from duet.utils.errors import UserError
from duet.utils.files.json_files import Document
from duet.utils.files.yaml_files import read_yaml
from duet.utils.processes.suspend import FILE_VARIABLE
from duet.utils.processes.world import World
from duet.utils.state.files import StateFiles, number_of
from duet.utils.state.progress import read_progress
from duet.utils.text import count
from duet.utils.weights.checkpoint import Checkpoint, Header, load_checkpoint
from duet.utils.weights.load import file_beside

HYPERPARAMETERS = {"hyp", "override"}  # compared by value

LAST = Path("weights/last.safetensors")  # in a run
RECORD = "work.json"  # the last file written by a run
OTHER_VERSION = "resume with the version that wrote it, or start a new run from it with --weights"

log = logging.getLogger("train")


class ResumePoint(NamedTuple):
    """A run and the state to resume from; `load_state(path)` reads its arrays."""

    folder: Path
    path: Path
    header: Header
    is_finished: bool = False  # nothing is left to do; only --resume auto finds such a run


def find_resume_point(values: FlagValues, given: FlagValues) -> ResumePoint | None:
    """Find the state for --resume; None for a new run.

    Args:
        values: values of all flags by name.
        given: values of the flags on the command line.

    Raises:
        UserError: nothing to resume (except for --resume auto), only damaged states, or a state
            with unknown settings.
    """
    asked = values["resume"]
    if not asked and "resume" in given:
        raise UserError(
            "--resume '': empty, as from a variable that is not set; give a run's folder"
        )
    if not asked:
        return None
    if asked in (AUTO, NEWEST):
        name = values["name"] if asked == AUTO else given.get("name")
        point = _newest_run(values["project"], name, asked == AUTO)
    else:
        point = _point_at(Path(asked))
    if point is None:
        return None
    settings = _all_settings(point.header.settings)
    is_last = all(number_of(x) <= point.header.batch_number for x in _states(point.folder))
    is_finished = (point.folder / RECORD).exists() and is_last
    next_step = f"for more epochs, start a new run with --weights {point.folder / LAST}"
    if point.header.epoch < settings["epochs"]:  # --patience or --time has ended it
        is_finished &= not any(_is_larger(given, settings, x) for x in ("patience", "hours"))
        next_step = (
            "--patience or --time has ended it: give a larger value to continue, or 0 for no limit"
        )
    if is_finished and asked != AUTO:
        raise UserError(f"--resume: {point.folder} is already finished; {next_step}")
    header = dataclasses.replace(point.header, settings=settings)
    return point._replace(header=header, is_finished=is_finished)


def _is_larger(given: FlagValues, settings: Document, name: str) -> bool:
    """Return whether a limit on the command line is larger than a state's; 0: no limit."""
    return bool((given.get(name, settings[name]) or math.inf) > (settings[name] or math.inf))


def _newest_run(project: Path, name: str | None, is_auto: bool) -> ResumePoint | None:
    """Find the newest run called name for --resume auto, else the newest unfinished one."""
    folders = newest_runs(project, name)
    if not folders:
        text = f"no run with a state in {project}" + (f" named {name}" if name else "")
        if not is_auto:
            raise UserError(f"--resume: {text}; give its folder, or omit --resume")
        _log(logging.INFO, f"--resume auto: {text}; starting a new run")
        return None
    unfinished = [] if is_auto else [x for x in folders if not (x / RECORD).exists()]
    if unfinished:
        _log(logging.INFO, f"--resume: {unfinished[0]} is the newest unfinished run")
    return read_newest([*unfinished, *folders][0])


def _point_at(path: Path) -> ResumePoint:
    """Find the state in a run's folder or file; warn if later states will be replaced."""
    if not path.exists():
        beside = f"{found} is there; " if (found := file_beside(path)) else ""
        raise UserError(
            f"--resume {path}: no such folder or file; {beside}"
            "give a run's folder, a state in its folder weights, or --resume alone for the newest "
            "run in --project"
        )
    if path.is_dir():
        return read_newest(path)
    path = path.absolute()
    folder = path.parent.parent
    point = ResumePoint(folder, path, load_state(path).header)
    if path.parent.name != "weights":
        raise UserError(
            f"--resume {path}: a state must be in its run's folder, RUN/weights/{path.name}; move "
            "it there, or start a new run from it with --weights"
        )
    later = [x for x in _states(folder) if number_of(x) > point.header.batch_number]
    if later:
        _log(
            logging.WARNING,
            f"--resume: {folder} continues from {path.name}, which replaces its later states "
            f"{', '.join(x.name for x in reversed(later))}",
        )
    return point


def require_same_point(point: ResumePoint | None, world: World) -> None:
    """Raise UserError unless all ranks found the same state, or none."""
    found = "none"
    if point is not None:
        found = f"{point.folder.name} {point.path.name} {point.header.batch_number}"
    if not world.all_have(found):
        raise UserError(
            "--resume: the processes found different states: another process is writing to this "
            "run (wait for it or stop it), or --project is not a folder shared by all machines"
        )


def newest_runs(project: Path, name: str | None) -> list[Path]:
    """Return the runs with a state, latest first.

    name: only runs called name, name2, name3, ...; None for all.
    """
    found = []
    for folder in project.glob("*"):
        if name is None or _is_called(folder, name):
            with contextlib.suppress(OSError):  # another process may remove a state meanwhile
                times = [path.stat().st_mtime_ns for path in _states(folder)]
                found += [(max(times), folder)] if times else []
    return [folder for _, folder in sorted(found, reverse=True)]


def _is_called(folder: Path, name: str) -> bool:
    """Return whether a run has this --name: run9 may be the ninth `run`, or called `run9`."""
    suffix = folder.name.removeprefix(name)
    if not folder.name.startswith(name) or (suffix and not suffix.isdecimal()):
        return False
    try:
        return read_yaml("--resume", folder / "opt.yaml", "").get("name", name) == name
    except UserError:
        return True


def read_newest(folder: Path) -> ResumePoint:
    """Find the newest intact state of a run; log newer damaged ones."""
    paths = _states(folder)
    for path in paths:
        try:
            return ResumePoint(folder, path, load_state(path).header)
        except UserError as error:
            _log(logging.WARNING, f"{error}; trying the previous state")
    if paths:
        text = f"none of its {count(len(paths), 'state')} is usable; start a new run"
        raise UserError(f"--resume {folder}: {text}, with --weights {folder / LAST} if it is whole")
    raise UserError(
        f"--resume {folder}: no states in {folder / 'weights'}; give the folder of a run, such as "
        "runs/train/exp"
    )


def _log(level: int, text: str) -> None:
    """Log once per job: ranks skip it, since the process that started them has logged it."""
    if this_process().is_main and FILE_VARIABLE not in os.environ:
        log.log(level, text)


def load_state(path: Path) -> Checkpoint:
    """Read a state and complete its progress.

    Raises:
        UserError: it is damaged, contains only weights, or was written by a later version.
    """
    try:
        checkpoint = load_checkpoint(path)
    except UserError as error:
        raise UserError(str(error).replace("--weights", "--resume", 1)) from error
    if not checkpoint.header.progress:
        raise UserError(
            f"--resume {path}: not a training state but only weights; start a new run from them "
            "with --weights"
        )
    try:
        progress = read_progress(checkpoint.header.progress)
    except ValueError as error:
        raise UserError(
            f"--resume {path}: the format of its progress does not match this version "
            f"({str(error):.300}); {OTHER_VERSION}"
        ) from error
    header = dataclasses.replace(checkpoint.header, progress=progress)
    return dataclasses.replace(checkpoint, header=header)


def resumed_config(
    values: FlagValues, given: FlagValues, header: Header
) -> tuple[TrainConfig, Hyperparameters]:
    """Return the run's settings, updated with flags that may change during a run.

    Raises:
        UserError: flags that would change results; all are listed.
    """
    try:
        hyp = Hyperparameters(**header.hyperparameters)
    except (TypeError, UserError) as error:  # a name is missing or unknown, or a value wrong
        raise UserError(
            f"--resume: the state's hyper-parameters: {error}; {OTHER_VERSION}"
        ) from error
    problems = list(_changes(given, header.settings, hyp))
    if problems:
        raise UserError(
            f"--resume continues with the run's own settings, but {'; '.join(problems)}; remove "
            "these flags, or start a new run from its weights"
        )
    settings = {name: tuple(x) if isinstance(x, list) else x for name, x in header.settings.items()}
    settings |= {name: Path(str(settings[name])) for name in ("hyp", "project")}
    settings["loggers"] = _without_code(settings["loggers"], given)
    # The run keeps its name, by which --resume finds it.
    free = {name: value for name, value in given.items() if name in FREE - {"name"}}
    return TrainConfig(**{**values, **settings, **free}), hyp


def _without_code(loggers: Sequence[str], given: FlagValues) -> tuple[str, ...]:
    """Return a state's loggers without importable classes: files are data, never code."""
    named = [name for name in loggers if ":" in name]
    if named and "loggers" not in given:
        text = f"logger {', '.join(named)} is disabled; add --loggers to use it again"
        _log(logging.WARNING, f"--resume: {text}")
    return tuple(name for name in loggers if name not in named)


def _all_settings(stored: Document) -> Document:
    """Return a state's settings, with defaults for flags that are newer than the state.

    Raises:
        UserError: unknown settings, or settings of a different type; all are listed.
    """
    flags = read_train_flags([])[0]
    defaults = {name: plain(x) for name, x in flags.items() if name not in PROCESS_SETTINGS}
    kept = {name: x for name, x in stored.items() if name not in PROCESS_SETTINGS}
    settings = {**defaults, **kept}
    types = get_type_hints(TrainConfig)
    unlike = [
        name
        for name, value in settings.items()
        if name not in defaults or not _is_like(value, defaults[name], types[name])
    ]
    if unlike:
        raise UserError(
            f"--resume: the state has settings that are unknown or different in this version: "
            f"{', '.join(unlike)}; {OTHER_VERSION}"
        )
    return settings


def _is_like(value: object, default: object, kind: object) -> bool:
    """Return whether a setting has its default's type, or one of the field's types if None."""
    if isinstance(value, list):
        return isinstance(default, list) and all(isinstance(item, str) for item in value)
    return type(value) is type(default) or (default is None and type(value) in get_args(kind))


def _changes(given: FlagValues, settings: Document, hyp: Hyperparameters) -> Iterator[str]:
    if given.keys() & HYPERPARAMETERS:
        file, overrides = ({**settings, **given}[name] for name in ("hyp", "override"))
        asked = as_document(read_hyperparameters(file, overrides))
        unlike = [key for key, number in as_document(hyp).items() if number != asked[key]]
        if unlike:
            yield f"--hyp {file} differs in {', '.join(unlike)}"
    for name, value in given.items():
        stored = settings.get(name)
        if name == "batch_size" and value == AUTO_BATCH:
            continue  # was measured when the run began
        if (name, value, stored) == ("amp", "bf16", "auto"):
            continue  # was slower when the run began
        if name not in FREE | HYPERPARAMETERS and plain(value) != plain(stored):
            yield f"{name} is {plain(value)} instead of {plain(stored)}"


def _states(folder: Path) -> list[Path]:
    """List the states, newest first, or the last weights if there are none."""
    states = StateFiles(folder, keep=1).newest_first()
    last = folder / LAST
    return states or ([last] if last.exists() else [])
