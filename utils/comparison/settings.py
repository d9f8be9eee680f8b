"""compare.py's flags as one checked object, and that object as JSON for --resume.

Before: the command line. After: `plan.py`.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backend.select import FRAMEWORKS
from backend.words import count
from utils.cli.flags import new_parser
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.run_config import require_folder_name, require_part
from utils.comparison.plan import ABLATION, PLAIN, VARIANTS, known_variant
from utils.data.sources.dataset import BUILT_IN, load_dataset
from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.files.json import Default, complete, read_json
from utils.files.project import PROJECT
from utils.processes.launch import wanted_processes
from utils.setup.environments import python_of
from utils.state.start_checks import (
    check_device,
    check_file,
    check_model_yaml,
    check_new_folder,
    check_public_size,
)

FILE = "settings.json"
TRAINERS = tuple(name for name, framework in FRAMEWORKS.items() if framework.trains)
KINDS = {
    **dict.fromkeys(("data", "cfg", "weights", "hyp", "device"), str),
    **dict.fromkeys(("image_size", "epochs", "warm_up_epochs", "rounds", "nproc"), int),
    **dict.fromkeys(("workers", "seed"), int),
    **dict.fromkeys(("backends", "variants"), [str]),
    "batches": [int],
    "timeout_minutes": float,
    "pythons": {str: str},
    "externals": [{"name": str, "command": [str], "results": str}],
    "allow_unequal": bool,
    "train_part": Default(float, 0.0),
}  # of Settings as JSON


@dataclass(frozen=True)
class External:
    """Another trainer: its command, and its file with a row per epoch if it writes one."""

    name: str
    command: tuple[str, ...]
    results: str = ""


@dataclass(frozen=True)
class Settings:
    """What a comparison runs."""

    data: str
    cfg: str
    weights: str
    hyp: str
    image_size: int
    batches: tuple[int, ...]
    epochs: int
    warm_up_epochs: int
    rounds: int
    backends: tuple[str, ...]
    variants: tuple[str, ...]
    device: str
    nproc: int
    workers: int
    seed: int
    timeout_minutes: float
    pythons: dict[str, str]
    externals: tuple[External, ...]
    allow_unequal: bool
    train_part: float = 0.0  # of a dataset without val, to train on; 0: it has val

    def __post_init__(self) -> None:
        for flag, value, lowest in (
            ("--img", self.image_size, 32),
            ("--batch", min(self.batches), 1),
            ("--epochs", self.epochs, 1),
            ("--warm-up-epochs", self.warm_up_epochs, 0),
            ("--rounds", self.rounds, 1),
            ("--nproc", self.nproc, 1),
            ("--workers", self.workers, 0),
            ("--seed", self.seed, 0),
        ):
            if value < lowest:
                raise UserError(f"{flag} {value}; a whole number from {lowest} up is needed")
        require_part("--split", self.train_part or None)
        if wrong := [str(batch) for batch in self.batches if batch % self.nproc]:
            raise UserError(
                f"--batch {', '.join(wrong)}: the images of all "
                f"{count(self.nproc, 'process', 'processes')} together; "
                f"only numbers divisible by {self.nproc} are accepted"
            )
        if not self.timeout_minutes > 0:
            raise UserError(f"--timeout {self.timeout_minutes}; a number above 0 is needed")
        for variant in self.variants:
            known_variant(variant)
        for flag, values in (
            ("--batch", self.batches),
            ("--backends", self.backends),
            ("--variants", self.variants),
            ("--external", tuple(external.name for external in self.externals)),
        ):
            if len(set(values)) != len(values):
                raise UserError(f"{flag}: {', '.join(map(str, values))} names one of them twice")

    @property
    def total_epochs(self) -> int:
        return self.warm_up_epochs + self.epochs

    def save(self, folder: Path) -> None:
        """Write the settings into the output folder, for --resume."""
        with atomic_text_file(folder / FILE) as file:
            json.dump(asdict(self), file, indent=1)


def load_settings(folder: Path) -> Settings:
    """Load the settings of a comparison that was begun; UserError if there is none."""
    try:
        document = complete(read_json(folder / FILE), KINDS)
        externals = tuple(
            External(row["name"], tuple(row["command"]), row["results"])
            for row in document.pop("externals")
        )
        for name in ("batches", "backends", "variants"):
            document[name] = tuple(document[name])
        return Settings(**document, externals=externals)
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(
            f"--resume {folder}: no comparison was begun there ({error!s:.200}); name the "
            "folder that compare.py printed, as runs/compare/exp"
        ) from error


def parse_flags(arguments: Sequence[str] | None = None) -> tuple[Settings, Path | None, Path]:
    """Read the command line, by default sys.argv.

    Returns:
        The settings, the folder of --resume (None for a new comparison), and --project/--name.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    flags = compare_parser().parse_args(arguments)
    if flags.resume is not None:
        if len(arguments) > (1 if arguments[0].startswith("--resume=") else 2):
            raise UserError(
                "--resume takes every setting from the folder it names; leave out the other flags"
            )
        return load_settings(flags.resume), flags.resume, flags.resume
    settings = _settings(flags)
    check_before_runs(settings, flags.project, flags.name)
    return settings, None, flags.project / flags.name


def check_before_runs(settings: Settings, project: Path, name: str) -> None:
    """Raise UserError for a flag on which every run would fail, before there is one."""
    require_folder_name("--name", name)
    check_new_folder(project, name)
    check_device(settings.device)
    if not settings.weights:
        check_public_size(settings.image_size, settings.cfg)
    check_model_yaml(settings.cfg)
    check_file("--weights", settings.weights)
    if settings.hyp:
        read_hyperparameters(settings.hyp)
    if settings.data != BUILT_IN or settings.train_part:
        load_dataset(settings.data, train_part=settings.train_part or None)


def compare_parser() -> argparse.ArgumentParser:
    """Return the parser of compare.py's flags."""
    parser = new_parser("compare.py", "Compare the epoch times of OneFlow and PyTorch.")
    add = parser.add_argument
    add("--data", default="shapes", metavar="D", help="dataset YAML, or 'shapes', the built-in one")
    add("--split", dest="train_part", type=float, metavar="F",
        help="for a dataset without a val split: train on this fraction, validate on the "
        "rest")  # fmt: skip
    add("--cfg", default="models/yolov5n.yaml", metavar="F", help="model YAML")
    add("--weights", default="", metavar="F", help="weights to start from; '': drawn from the seed")
    add("--hyp", default="", metavar="F", help="hyper-parameter YAML; '': the default of train.py")
    add("--img", dest="image_size", type=int, default=320, metavar="PX",
        help="long side of the images")  # fmt: skip
    add("--batch", default="8,16,32", metavar="N,N", help="batch sizes, in images")
    add("--epochs", type=int, default=2, metavar="N", help="epochs that are timed in each run")
    add("--warm-up-epochs", type=int, default=1, metavar="N",
        help="epochs before them that are not timed")  # fmt: skip
    add("--rounds", type=int, default=2, metavar="N", help="runs of every cell, in turns: A B A B")
    add("--backends", default=",".join(TRAINERS), metavar="B,B",
        help="backends to compare; the first is the reference")  # fmt: skip
    add("--variants", default=PLAIN, metavar="V,V", help=f"some of {', '.join(VARIANTS)}")
    add("--ablate", action="store_true", help="instead of --variants: switch each option on and "
        "off, one at a time, on one backend")  # fmt: skip
    add("--nproc", type=int, default=0, metavar="N",
        help="processes per run, each with a shard of every batch; 0: one per device of "
        "--device")  # fmt: skip
    add("--device", default="", help="cpu, 0 for the first GPU; '': a GPU if there is one")
    add("--workers", type=int, default=8, metavar="N", help="loader workers, at most one per core")
    add("--seed", type=int, default=0, help="random seed of weights, order and augmentation")
    add("--timeout", type=float, default=60, metavar="MIN", help="minutes after which a run fails")
    add("--python", action="append", default=[], metavar="BACKEND=PATH",
        help="Python interpreter of a backend; default: .venv/BACKEND/bin/python")  # fmt: skip
    add("--external", action="append", default=[], metavar="NAME=COMMAND",
        help="another trainer to compare; {batch} {img} {epochs} {device} {nproc} {folder} are "
        "filled in")  # fmt: skip
    add("--external-results", action="append", default=[], metavar="NAME=FILE",
        help="results file of that trainer: a heading, then one row per epoch")  # fmt: skip
    add("--allow-unequal", action="store_true",
        help="mark figures of unequal work instead of refusing them")  # fmt: skip
    add("--project", type=Path, default=Path("runs/compare"), metavar="P",
        help="folder that holds the comparisons")  # fmt: skip
    add("--name", default="exp", metavar="N", help="folder of this comparison inside --project")
    add("--resume", type=Path, metavar="FOLDER", help="continue the comparison in this folder")
    return parser


def _settings(flags: Any) -> Settings:
    require_part("--split", flags.train_part)
    backends = _names(flags.backends)
    for name in backends:
        if name not in TRAINERS:
            known = ", ".join(TRAINERS)
            raise UserError(f"--backends {name}: no backend that trains; accepted: {known}")
    if flags.ablate and (len(backends) > 1 or flags.variants != PLAIN):
        raise UserError("--ablate takes one backend, as --backends torch, and no --variants")
    return Settings(
        data=flags.data,
        cfg=flags.cfg,
        weights=flags.weights,
        hyp=flags.hyp,
        image_size=flags.image_size,
        batches=_batches(flags.batch),
        epochs=flags.epochs,
        warm_up_epochs=flags.warm_up_epochs,
        rounds=flags.rounds,
        backends=backends,
        variants=ABLATION if flags.ablate else _names(flags.variants),
        device=flags.device,
        nproc=wanted_processes(flags),
        workers=flags.workers,
        seed=flags.seed,
        timeout_minutes=flags.timeout,
        pythons=find_pythons(backends, flags.python),
        externals=_externals(flags),
        allow_unequal=flags.allow_unequal,
        train_part=flags.train_part or 0.0,
    )


def find_pythons(backends: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """Return the interpreter of each backend; UserError for one that is not there."""
    named = _by_name("--python", given)
    for name in named.keys() - set(backends):
        raise UserError(f"--python {name}=...: {name} is not among --backends")
    found = {}
    for backend in backends:
        path = Path(named.get(backend) or python_of(PROJECT / ".venv" / backend))
        if not path.is_file():
            raise UserError(
                f"no Python for {backend} at {path}: make setup BACKEND={backend}, name one by "
                f"--python {backend}=PATH, or leave {backend} out of --backends"
            )
        found[backend] = str(path)
    return found


def _externals(flags: Any) -> tuple[External, ...]:
    results = _by_name("--external-results", flags.external_results)
    commands = _by_name("--external", flags.external)
    for name in results.keys() - commands.keys():
        raise UserError(
            f"--external-results {name}=...: its trainer is missing; give --external "
            f"{name}=COMMAND too"
        )
    several = len(_batches(flags.batch)) > 1
    for name, command in commands.items():
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or name in FRAMEWORKS:
            raise UserError(
                f"--external {name}=...: a name of letters, digits, '.', '_' and '-' that is no "
                "backend's is needed"
            )
        if several and "{batch}" not in command:
            raise UserError(
                f"--external {name}=...: write {{batch}} where the command takes the batch size, "
                "or give a single --batch"
            )
    return tuple(
        External(name, split_command(f"--external {name}", command), results.get(name, ""))
        for name, command in commands.items()
    )


def split_command(flag: str, command: str) -> tuple[str, ...]:
    """Return the words of a command that a flag gives; UserError for none, or an open quote."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UserError(f"{flag}={command}: {error}") from error
    if not words:
        raise UserError(f"{flag}=: a command is needed")
    return words


def _by_name(flag: str, values: Sequence[str]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for value, (name, equals, rest) in zip(values, pairs, strict=True):
        if not (name and equals and rest):
            raise UserError(f"{flag} {value!r}; NAME=... is needed")
    found = {name: rest for name, _, rest in pairs}
    if len(found) < len(pairs):
        raise UserError(f"{flag} names one of {', '.join(found)} twice")
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _batches(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UserError(f"--batch {text}; whole numbers are needed, as 8,16,32") from None
