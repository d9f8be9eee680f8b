"""compare.py's flags, which --resume reads back from compare.json, and the runs they plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from duet.backend.devices import check_device
from duet.backend.select import FRAMEWORKS, install_command
from duet.utils.cli.flags import (
    add_flags,
    check_flags,
    flag,
    new_parser,
    same_flag,
    whole_from,
    within,
)
from duet.utils.cli.run_config import require_folder_name
from duet.utils.cli.train_config import TrainConfig
from duet.utils.errors import UserError, os_fault
from duet.utils.files.json_files import Default, complete, read_json
from duet.utils.processes.launch import wanted_processes
from duet.utils.project import PROJECT
from duet.utils.text import count

FILE = "compare.json"
Document = dict[str, Any]  # as JSON holds it
BESIDE = "python -m benchmarks.beside times another trainer beside ours, and compares their work"
ABSENT = {"--external": BESIDE, "--external-results": BESIDE}
TRAINERS = tuple(name for name, framework in FRAMEWORKS.items() if framework.trains)


PLAIN = "plain"
# On a GPU, paths are fused unless switched off, and pixels then differ by up to one grey level.
REFERENCE = ("--no-bbox_iou_optim", "--no-multi_tensor_optimizer", "--no-device-augment")
VARIANTS = {  # flags of train.py, after REFERENCE; an unknown one fails the cell alone
    PLAIN: "",
    "fused": "--bbox_iou_optim --multi_tensor_optimizer",
    "fused-loss": "--bbox_iou_optim",
    "fused-update": "--multi_tensor_optimizer",
    "compile": "--compile",
    "bf16": "--amp bf16-always",
    "fp16": "--amp fp16",
    "channels-last": "--layout channels-last",
    "cache": "--cache ram",
    "no-loader-processes": "--workers 0",
}
CHANGES = {  # entries of work.json that a variant changes besides its flags
    "bf16": {"precision"},
    "fp16": {"precision", "optimizer_steps"},  # its loss scale may skip a step
    "channels-last": {"layout"},
    "cache": {"cached.training", "cached.validation"},
}
# Options that --ablate switches on one at a time; "fused" combines two.
ABLATION = tuple(name for name in VARIANTS if name != "fused")


@dataclass(frozen=True)
class Settings:
    """The settings of a comparison; properties split flags with several values."""

    data: str = flag("data", "--data", default="shapes", metavar="D",
        help="dataset YAML, or 'shapes', the built-in one")  # fmt: skip
    train_part: float | str | None = same_flag(TrainConfig, "train_part")
    image_size: int = flag("data", "--img", default=320, metavar="PX", check=whole_from(32),
        help="long side of the images")  # fmt: skip
    batch: str = flag("data", "--batch", default="8,16,32", metavar="N,N",
        help="batch sizes, in images")  # fmt: skip
    cfg: str = flag("model", "--cfg", default="models/yolov5n.yaml", metavar="F", help="model YAML")
    weights: str = flag("model", "--weights", default="", metavar="F",
        help="initial weights; default: random")  # fmt: skip
    hyp: str = flag("recipe", "--hyp", default="", metavar="F",
        help="hyper-parameter YAML; '': the default of train.py")  # fmt: skip
    epochs: int = flag("recipe", "--epochs", default=2, metavar="N", check=whole_from(1),
        help="timed epochs per run")  # fmt: skip
    warm_up_epochs: int = flag("recipe", "--warm-up-epochs", default=1, metavar="N",
        check=whole_from(0), help="untimed epochs before them")  # fmt: skip
    rounds: int = flag("recipe", "--rounds", default=2, metavar="N", check=whole_from(1),
        help="runs of each cell, alternating: A B A B")  # fmt: skip
    seed: int = same_flag(TrainConfig, "seed")
    backends: str = flag("backend and device", "--backends", default=",".join(TRAINERS),
        metavar="B,B", help="backends to compare; the first is the reference")  # fmt: skip
    device: str = flag("backend and device", "--device", default="",
        help="cpu, 0 for the first GPU; '': a GPU if there is one")  # fmt: skip
    python: list[str] | None = flag("backend and device", "--python", default=None, action="append",
        metavar="BACKEND=PATH",
        help="Python interpreter of a backend; default: .venv/BACKEND/bin/python")  # fmt: skip
    variants: str = flag("speed", "--variants", default=PLAIN, metavar="V,V",
        help=f"some of {', '.join(VARIANTS)}")  # fmt: skip
    ablate: bool = flag("speed", "--ablate", default=False,
        help="instead of --variants: switch each option on and off, one at a time, on one "
        "backend")  # fmt: skip
    nproc: int = flag("several processes", "--nproc", default=0, metavar="N", check=whole_from(0),
        help="processes per run, each with a shard of every batch; 0: one per device of "
        "--device")  # fmt: skip
    workers: int = flag("several processes", "--workers", default=8, metavar="N",
        check=whole_from(0), help="loader workers, at most one per core")  # fmt: skip
    timeout: float = flag("interruption", "--timeout", default=60.0, metavar="MIN",
        check=within(0, kind="a number of minutes", above=True),
        help="minutes after which a run fails")  # fmt: skip
    allow_unequal: bool = flag("output", "--allow-unequal", default=False,
        help="mark results of unequal work instead of refusing them")  # fmt: skip

    def __post_init__(self) -> None:
        check_flags(self)
        _check_names("--backends", self.all_backends, TRAINERS)
        _check_names("--variants", self.all_variants, VARIANTS)
        _check_names("--batch", _split(self.batch))
        if self.ablate and ("," in self.backends or self.variants != PLAIN):
            raise UserError("--ablate needs one backend, as in --backends torch, and no --variants")
        whole_from(1)("--batch", min(self.batches))
        if wrong := [str(batch) for batch in self.batches if batch % self.processes]:
            raise UserError(
                f"--batch {', '.join(wrong)}: the images of all "
                f"{count(self.processes, 'process', 'processes')} together; "
                f"only numbers divisible by {self.processes} are accepted"
            )

    @property
    def batches(self) -> tuple[int, ...]:
        try:
            return tuple(map(int, _split(self.batch)))
        except ValueError:
            raise UserError(f"--batch {self.batch}; accepted: numbers, as in 8,16,32") from None

    @property
    def all_backends(self) -> tuple[str, ...]:
        return _split(self.backends)

    @property
    def all_variants(self) -> tuple[str, ...]:
        return ABLATION if self.ablate else _split(self.variants)

    @property
    def cells(self) -> list[Cell]:
        """All cells; the backends of a comparison follow one another."""
        each = product(self.batches, self.all_variants, self.all_backends)
        return [Cell(side, variant, batch) for batch, variant, side in each]

    @property
    def processes(self) -> int:
        return wanted_processes(self.device, self.nproc)


def load_comparison(folder: Path) -> tuple[Settings, Document]:
    """Load the settings and the compare.json of an earlier comparison; UserError if there is none.

    Settings are checked like flags: the file may have been edited.
    """
    kinds = {
        field.name: type(field.default) if field.default is not None else Default([str], None)
        for field in fields(Settings)
        if field.name != "train_part"
    }
    try:
        document = read_json(folder / FILE)
        given = {name: x for name, x in document["settings"].items() if x is not None}
        if not isinstance(document["machine"], dict) or "created" not in document:
            raise ValueError("it is not the report of a comparison")
        part = given.pop("train_part", None)  # a number or a text: Settings checks it
        return Settings(**complete(given, kinds), train_part=part), document
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = os_fault(error) if isinstance(error, OSError) else f"{FILE}: {error!s:.200}"
        raise UserError(
            f"--resume {folder}: no comparison found ({text}); give the folder that compare.py "
            "printed, such as runs/compare/exp"
        ) from error


def parse_flags(
    arguments: Sequence[str] | None = None,
) -> tuple[Settings, Document | None, Path]:
    """Read the command line, by default sys.argv.

    Returns:
        The settings; the report so far and the folder of --resume, or None and --project/--name.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    given = vars(compare_parser().parse_args(arguments))
    project, name, resume = (given.pop(key) for key in ("project", "name", "resume"))
    if resume is not None:
        if len(arguments) > (1 if arguments[0].startswith("--resume=") else 2):
            raise UserError(
                "--resume takes all settings from the folder; leave out the other flags"
            )
        return *load_comparison(resume), resume
    settings = Settings(**given)
    find_pythons(settings.all_backends, settings.python)
    require_folder_name("--name", name)
    check_device(settings.device)
    return settings, None, project / name


def compare_parser() -> argparse.ArgumentParser:
    parser = new_parser("compare.py", "Compare the epoch times of OneFlow and PyTorch.", ABSENT)
    add_flags(parser, Settings)
    add = parser.add_argument
    add("--project", type=Path, default=Path("runs/compare"), metavar="P",
        help="folder that holds the comparisons")  # fmt: skip
    add("--name", default="exp", metavar="N", help="folder of this comparison inside --project")
    add("--resume", type=Path, metavar="FOLDER", help="continue the comparison in this folder")
    return parser


def find_pythons(backends: Sequence[str], given: Sequence[str] | None = None) -> dict[str, str]:
    """Return the interpreter of each backend, including --python; UserError if one is missing."""
    named = {}
    for value in given or ():
        name, _, path = value.partition("=")
        if not path or name not in backends or name in named:
            accepted = " or ".join(f"{backend}=PATH" for backend in backends)
            raise UserError(f"--python {value!r}; {accepted} is needed, once")
        named[name] = path
    found = {}
    for backend in backends:
        python = Path(named.get(backend) or PROJECT / ".venv" / backend / "bin" / "python")
        if not python.is_file():
            raise UserError(
                f"no Python for {backend} at {python}: run {install_command(backend)}, "
                f"use --python {backend}=PATH, or leave {backend} out of --backends"
            )
        found[backend] = str(python)
    return found


def _check_names(flag: str, names: Sequence[str], known: Collection[str] | None = None) -> None:
    for name in names:
        if known is not None and name not in known:
            raise UserError(f"{flag} {name}; accepted: {', '.join(known)}")
    if len(set(names)) != len(names):
        raise UserError(f"{flag} {','.join(names)} has a duplicate")


def _split(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


@dataclass(frozen=True)
class Cell:
    side: str  # a backend, or another trainer of `benchmarks.beside`
    variant: str
    batch: int

    @property
    def name(self) -> str:
        """For example "torch-plain-b16", for folders and messages."""
        return f"{self.side}-{self.variant}-b{self.batch}"


class Turn(NamedTuple):
    cell: Cell
    round: int  # from 1

    @property
    def name(self) -> str:
        return f"{self.cell.name}-round{self.round}"


class Pair(NamedTuple):
    """Two cells to compare: the candidate's time is divided by the reference's."""

    reference: Cell
    candidate: Cell

    @property
    def by_design(self) -> set[str]:
        """Entries of work.json in which the two differ on purpose."""
        variants = {cell.variant for cell in self}
        if len(variants) == 1:
            return set()
        flags = (word for name in variants for word in VARIANTS[name].split() if word[:2] == "--")
        settings = {f"settings.{flag[2:].replace('-', '_')}" for flag in flags}
        return settings.union(*(CHANGES.get(name, set()) for name in variants))


def turns(cells: Sequence[Cell], rounds: int) -> Iterator[Turn]:
    """Yield A B A B: every cell once per round, so a slower machine affects all cells alike."""
    for number in range(1, rounds + 1):
        for cell in cells:
            yield Turn(cell, number)


def make_pairs(cells: Sequence[Cell]) -> list[Pair]:
    """Pair each backend and each variant with the first one, for each batch size."""
    pairs, first = [], cells[0]
    for batch in dict.fromkeys(cell.batch for cell in cells):
        alike = [cell for cell in cells if cell.batch == batch]
        pairs += [Pair(replace(x, side=first.side), x) for x in alike if x.side != first.side]
        pairs += [Pair(replace(x, variant=first.variant), x)
            for x in alike if x.variant != first.variant]  # fmt: skip
    return pairs
