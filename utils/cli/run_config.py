"""Settings shared by commands, for running a model and for several processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from duet.backend.select import FRAMEWORKS
from duet.utils.cli.flags import check_flags, flag, flags_of, whole_from, within
from duet.utils.errors import UserError
from duet.utils.image_limits import MAX_IMAGE_SIZE, MAX_PIXELS

require_part = within(0, 1, "a fraction", above=True, below=True)


def require_folder_name(name: str, value: str) -> None:
    """Raise UserError unless value is a plain folder name."""
    if value in ("", ".", "..") or set("/\0") & set(value):
        raise UserError(f"{name} {value!r}; accepted: a folder name, without path, for --project")


@dataclass(frozen=True)
class CommandConfig:
    """Settings of every command that runs a model, with the public flag names and synonyms."""

    backend: str | None = flag("backend and device", "--backend", default=None,
        choices=tuple(FRAMEWORKS), help="framework; default: YOLO_BACKEND, else the installed "
        "one")  # fmt: skip
    image_size: int = flag("data", "--img", "--imgsz", "--img-size", default=640, metavar="PX",
        check=whole_from(32, MAX_IMAGE_SIZE), help="long side of the images; the short side "
        "follows from the image. Default for classifiers: 224, or the training "
        "size")  # fmt: skip
    max_pixels: int = flag("data", "--max-pixels", default=MAX_PIXELS, metavar="N",
        check=whole_from(1), help="skip images with more pixels than this")  # fmt: skip
    batch_size: int = flag("data", "--batch-size", "--batch", default=16, metavar="N",
        check=whole_from(1), help="images per batch, over all processes")  # fmt: skip
    device: str = flag("backend and device", "--device", default="",
        help="cpu, 0 for the first GPU, 0,1 for two processes with one GPU each; '': a GPU if "
        "available")  # fmt: skip
    project: Path = flag("output", "--project", default=Path("runs/train"), metavar="P",
        help="folder that holds the runs")  # fmt: skip
    name: str = flag("output", "--name", default="exp", metavar="N", check=require_folder_name,
        help="folder of this run inside --project")  # fmt: skip
    exist_ok: bool = flag("output", "--exist-ok", default=False,
        help="reuse the folder of the run if it exists")  # fmt: skip

    def usual(self) -> dict[str, Any]:
        """Return the defaults by name."""
        return {field.name: field.default for field in fields(self)}

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raise UserError for a given flag that does not apply.

        reasons: why, by field name; may include fields of other commands.
        """
        flags, usual = flags_of(self), self.usual()
        for name, reason in reasons.items():
            if name in usual and getattr(self, name) != usual[name]:
                raise UserError(f"{flags[name].names[0]}: {reason}; leave it out")

    def __post_init__(self) -> None:
        check_flags(self)


@dataclass(frozen=True)
class RunConfig(CommandConfig):
    """Additional settings shared by train.py and val.py: dataset and processes."""

    data: str = flag("data", "--data", default="shapes", metavar="D",
        help="dataset YAML, folder or annotation file, or a built-in one: shapes, shapes-seg, "
        "shapes-cls")  # fmt: skip
    train_part: float | None = flag("data", "--split", default=None, type=float, metavar="F",
        check=require_part,
        help="for a dataset without a val split: train on this fraction, validate on the "
        "rest")  # fmt: skip
    workers: int | None = flag("data", "--workers", default=None, type=int, metavar="N",
        check=whole_from(0),
        help="loader workers per process, at most one per core; default: depends on cores and "
        "device")  # fmt: skip
    nproc: int = flag("several processes", "--nproc", default=0, metavar="N", check=whole_from(0),
        help="number of processes; 0: one per device of --device")  # fmt: skip
    timeout: float = flag("several processes", "--timeout", default=600, type=float, metavar="S",
        check=within(0, kind="a number of seconds", above=True),
        help="end all processes if one makes no progress for this many seconds")  # fmt: skip

    def check_processes(self, number: int) -> None:
        """Raise UserError for settings that do not work with this number of processes."""


def as_document(config: Any) -> dict[str, Any]:
    """Convert settings to plain YAML and JSON values."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(config).items()
    }
