"""Settings shared by commands: running a model, several processes, and detection."""

import argparse
import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

from duet.backend.select import FRAMEWORKS
from duet.utils.cli.flags import (
    FlagValues,
    Settings,
    check_flags,
    flag,
    flags_of,
    require_fraction,
    whole_from,
    within,
)
from duet.utils.errors import UserError, brief
from duet.utils.files.json_files import Document
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.geometry.tiling import MAX_OVERLAP, MIN_OVERLAP, MIN_SIDE, OVERLAP, Tiling
from duet.utils.image_limits import MAX_IMAGE_SIZE, MAX_PIXELS
from duet.utils.project import WEIGHTS_FILES
from duet.utils.text import printable

SHOWN_NAMES = 5  # of classes, in messages
require_fraction_of_images = within(0, 1, "a fraction", above=True, below=True)
MOST_FOLDS = 100
image_size_flag = partial(
    flag, "data", "--img", "--imgsz", "--img-size", metavar="PX",
    check=whole_from(32, MAX_IMAGE_SIZE),
)  # fmt: skip


def part_of(text: str) -> float | str:
    """Parse --split: a fraction for training, or a fold K/N for validation."""
    try:
        fold, slash, number = text.partition("/")
        return f"{int(fold)}/{int(number)}" if slash else float(text)
    except ValueError:
        wanted = "accepted: a fraction such as 0.8, or a fold such as 3/5"
        raise argparse.ArgumentTypeError(f"{printable(text)}; {wanted}") from None


def require_part(name: str, value: float | str | None) -> None:
    if not isinstance(value, str):
        return require_fraction_of_images(name, value)
    fold, number = map(int, value.split("/"))
    if not 1 <= fold <= number or not 2 <= number <= MOST_FOLDS:
        raise UserError(
            f"{name} {value}; accepted: a fold from 1/N to N/N, with N from 2 to {MOST_FOLDS}"
        )


def require_folder_name(name: str, value: str) -> None:
    refused = '/\\:*?"<>|\0' if sys.platform == "win32" else "/\0"
    if value in ("", ".", "..") or set(refused) & set(value):
        raise UserError(f"{name} {value!r}; accepted: a folder name, without path, for --project")


@dataclass(frozen=True)
class CommandConfig:
    """Settings of every command that runs a model, with the public flag names and synonyms."""

    backend: str | None = flag("backend and device", "--backend", default=None,
        choices=tuple(FRAMEWORKS), help="framework; default: YOLO_BACKEND, else the installed "
        "one")  # fmt: skip
    max_pixels: int = flag("data", "--max-pixels", default=MAX_PIXELS, metavar="N",
        check=whole_from(1), help="skip images with more pixels than this")  # fmt: skip
    batch_size: int = flag("data", "--batch-size", "--batch", default=16, metavar="N",
        check=whole_from(1), help="images per batch, over all processes")  # fmt: skip
    device: str = flag("backend and device", "--device", default="",
        help="cpu, 0 for the first GPU, 0,1 for two processes with one GPU each, mps for that of "
        "Apple; '': a GPU if available, but mps")  # fmt: skip
    project: Path = flag("output", "--project", default=Path("runs/train"), metavar="P",
        help="folder that holds the runs")  # fmt: skip
    name: str = flag("output", "--name", default="exp", metavar="N", check=require_folder_name,
        help="folder of this run inside --project")  # fmt: skip
    exist_ok: bool = flag("output", "--exist-ok", default=False,
        help="reuse the folder of the run if it exists")  # fmt: skip

    def usual(self) -> FlagValues:
        return {found.name: found.default for found in fields(self)}

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raise UserError for a given flag that does not apply.

        reasons: why, by field name; may include fields of other commands.
        """
        flags, usual = flags_of(self), self.usual()
        for name, reason in reasons.items():
            if name in usual and getattr(self, name) not in (usual[name], False):
                raise UserError(f"{flags[name].names[0]}: {reason}; leave it out")

    def __post_init__(self) -> None:
        check_flags(self)


@dataclass(frozen=True)
class RunConfig(CommandConfig):
    """Additional settings shared by train.py and val.py: dataset and processes."""

    data: str = flag("data", "--data", default="shapes", metavar="D",
        help="dataset YAML, folder or annotation file, or a built-in one: shapes, shapes-seg, "
        "shapes-cls")  # fmt: skip
    train_part: float | str | None = flag("data", "--split", default=None, type=part_of,
        metavar="F", check=require_part, help="for a dataset without a val split: train on this "
        "fraction, validate on the rest; or K/N: validate on fold K of N, train on the "
        "others")  # fmt: skip
    workers: int | None = flag("data", "--workers", default=None, type=int, metavar="N",
        check=whole_from(0),
        help="loader workers per process, at most one per core; default: depends on cores and "
        "device")  # fmt: skip
    nproc: int = flag("several processes", "--nproc", default=0, metavar="N", check=whole_from(0),
        help="number of processes; 0: one per device of --device")  # fmt: skip
    bind_numa: bool = flag("several processes", "--bind-numa", default=False,
        help="bind each process and its loader workers to the NUMA node of its GPU; on a CPU, "
        "spread the processes over the nodes")  # fmt: skip
    timeout: float = flag("several processes", "--timeout", default=600, type=float, metavar="S",
        check=within(0, kind="a number of seconds", above=True),
        help="end all processes if one makes no progress for this many seconds")  # fmt: skip

    def check_processes(self, number: int) -> None:
        """Raise UserError for settings that do not work with this number of processes."""


def require_tile(name: str, value: int) -> None:
    if value and value < MIN_SIDE:
        raise UserError(f"{name} {value}; accepted: 0, or at least {MIN_SIDE} pixels")


def class_of(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


def known_classes(name: str, classes: object, class_names: Sequence[str]) -> tuple[int, ...] | None:
    """Return the numbers of classes given by number or name; None for None.

    Raises:
        UserError: the model has no such class.
    """
    if classes is None:
        return None
    if not isinstance(classes, Iterable) or isinstance(classes, str):
        raise UserError(f"{name} {brief(classes)}; accepted: a list of class numbers or names")
    numbers = tuple(
        _number_of(name, given, class_names) if isinstance(given, str) else whole(name, given)
        for given in classes
    )
    for number in numbers:
        if not 0 <= number < len(class_names):
            raise UserError(f"{name} {number}; the model has classes 0 to {len(class_names) - 1}")
    return numbers


def _number_of(name: str, class_name: str, class_names: Sequence[str]) -> int:
    if class_name in class_names:
        return list(class_names).index(class_name)
    near = difflib.get_close_matches(class_name, class_names, n=1)
    hint = f"; did you mean {printable(near[0])!r}?" if near else ""
    hint = "; separate classes with spaces" if "," in class_name else hint
    some = ", ".join(map(printable, class_names[:SHOWN_NAMES]))
    more = " ..." if len(class_names) > SHOWN_NAMES else ""
    raise UserError(f"{name} {printable(class_name)!r}: the model has {some}{more}{hint}")


def whole(name: str, value: object) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise UserError(f"{name} {brief(value)}; accepted: a whole number")
    return int(value)


@dataclass(frozen=True)
class DetectionConfig(CommandConfig):
    """Weights, and how their predictions are filtered."""

    weights: tuple[str, ...] = flag("model", "--weights", default=(), type=str.strip, nargs="+",
        metavar="F", help="weights files of any kind; several form an ensemble")  # fmt: skip
    image_size: int | None = image_size_flag(default=None, type=int,
        help="long side of the images; the short side follows from the image; default: the "
        "training size stored in the weights, else 640, or 224 for classifiers")  # fmt: skip
    runtime: str = flag("model", "--runtime", default="", metavar="R",
        help="runtime of an exported file; default: by its name")  # fmt: skip
    confidence_threshold: float = flag("detection", "--conf", "--conf-thres", default=0.001,
        metavar="X", check=require_fraction, help="confidence threshold: lowest score of a "
        "detection")  # fmt: skip
    iou_threshold: float = flag("detection", "--iou", "--iou-thres", default=0.6, metavar="X",
        check=require_fraction, help="IoU threshold of NMS")  # fmt: skip
    class_agnostic: bool = flag("detection", "--agnostic-nms", default=False,
        help="class-agnostic NMS: a box removes boxes of all classes")  # fmt: skip
    classes: tuple[Any, ...] | None = flag("detection", "--classes", default=None, type=class_of,
        nargs="+", metavar="C", help="detect only these classes, by number or name")  # fmt: skip
    max_detections: int = flag("detection", "--max-det", default=300, metavar="N",
        check=whole_from(1), help="maximum number of detections per image")  # fmt: skip
    tile: int = flag("detection", "--tile", default=0, metavar="PX", check=require_tile,
        help="for small objects: also detect in tiles of this size if the image is larger, "
        "--batch-size tiles at a time")  # fmt: skip
    overlap: float | None = flag("detection", "--overlap", default=None, type=float, metavar="X",
        check=within(MIN_OVERLAP, MAX_OVERLAP),
        help=f"overlap of neighbouring tiles as a fraction; default: {OVERLAP}")  # fmt: skip
    augment: bool = flag("detection", "--augment", default=False,
        help="test-time augmentation: three scaled and mirrored views per image; takes more than "
        "twice the time")  # fmt: skip
    half: bool = flag("backend and device", "--half", default=False,
        help="compute in half precision on a GPU; falls back to float32 with a "
        "warning")  # fmt: skip
    save_txt: bool = flag("output", "--save-txt", default=False,
        help="save the detections of each image as YOLO labels")  # fmt: skip
    save_conf: bool = flag("output", "--save-conf", default=False,
        help="with --save-txt: add the score to each line")  # fmt: skip

    def suppression(self, multi_label: bool) -> SuppressionSettings:
        """Return the settings of NMS; multi_label: several classes per box, as for metrics."""
        names = {field.name for field in fields(SuppressionSettings)} - {"multi_label"}
        values = {name: getattr(self, name) for name in names}
        return SuppressionSettings(multi_label=multi_label, **values)

    @property
    def tiling(self) -> Tiling | None:
        """How images are tiled; None if they are not."""
        if not self.tile:
            return None
        overlap = OVERLAP if self.overlap is None else self.overlap
        return Tiling(self.tile, overlap, self.batch_size)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap is not None and not self.tile:
            raise UserError(
                f"--overlap {self.overlap} is the overlap of tiles; add --tile with their size"
            )
        if self.save_conf and not self.save_txt:
            raise UserError("--save-conf adds scores to the files of --save-txt; add --save-txt")
        if not any(self.weights):
            raise UserError(f"--weights is required: {WEIGHTS_FILES}")


def as_document(config: Settings) -> Document:
    return {name: plain(value) for name, value in asdict(config).items()}


def plain(value: object) -> Any:
    """Return a setting in the form stored in states."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
