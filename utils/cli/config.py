"""Flags and YAML -> frozen, checked settings; read once, passed down in sections."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils.cli.command import add_common_flags, new_parser
from utils.data.augment.sample import AugmentConfig
from utils.data.loading.image_cache import CACHE_KINDS
from utils.errors import UserError
from utils.files.project import PROJECT
from utils.files.yaml import find_yaml, read_yaml

DEFAULT_HYPERPARAMETERS = PROJECT / "data" / "hyps" / "hyp.scratch-low.yaml"
MAX_SEED = 2**63 - 1
PRECISIONS = ("off", "bf16", "fp16")
LAYOUTS = ("auto", "contiguous", "channels-last")
OPTIMIZERS = ("SGD", "Adam", "AdamW")
NEWEST, AUTO = "newest", "auto"  # of --resume, besides a folder or file
# Settings of one process, not of the run that it begins or goes on with.
PROCESS_SETTINGS = {"resume", "suspend_file", "time_limit", "nproc", "timeout"}
_NOT_GIVEN = object()


@dataclass(frozen=True)
class Hyperparameters:
    """The public YOLOv5 hyper-parameters; data/hyps/hyp.scratch-low.yaml explains each.

    One that is added later has a default that leaves the work as it was: states lack it.
    """

    lr0: float
    lrf: float
    momentum: float
    weight_decay: float
    warmup_epochs: float
    warmup_momentum: float
    warmup_bias_lr: float
    box: float
    cls: float
    cls_pw: float
    obj: float
    obj_pw: float
    iou_t: float
    anchor_t: float
    fl_gamma: float
    hsv_h: float
    hsv_s: float
    hsv_v: float
    degrees: float
    translate: float
    scale: float
    shear: float
    perspective: float
    flipud: float
    fliplr: float
    mosaic: float
    mixup: float
    copy_paste: float

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise UserError(f"{name}: {value!r} is not a number; write 0.01 or 1.0e-2")
            if not math.isfinite(value) or value < 0:
                raise UserError(f"{name}: {value}; a finite number from 0 up is needed")
        if self.anchor_t <= 1:
            raise UserError(f"anchor_t: {self.anchor_t}; a ratio above 1 is needed")
        for name in ("fl_gamma", "mixup", "copy_paste"):
            if getattr(self, name) != 0:
                raise UserError(f"{name}: {getattr(self, name)} is not available; set it to 0")
        for name in ("lrf", "momentum", "warmup_momentum"):
            if getattr(self, name) > 1:
                raise UserError(f"{name}: {getattr(self, name)}; at most 1 is accepted")
        self.augmentation()

    def augmentation(self) -> AugmentConfig:
        """Those that strengthen the augmentation; UserError for one out of its range."""
        names = [field.name for field in dataclasses.fields(AugmentConfig)]
        return AugmentConfig(**{name: getattr(self, name) for name in names})


def read_hyperparameters(path: str | Path) -> Hyperparameters:
    """Read a hyper-parameter YAML that names every hyper-parameter, and only these."""
    path = find_yaml(str(path), "data/hyps")
    document = read_yaml("--hyp", path, f"the default is {DEFAULT_HYPERPARAMETERS}")
    known = {field.name for field in dataclasses.fields(Hyperparameters)}
    unknown, missing = sorted(set(document) - known, key=str), sorted(known - set(document))
    if unknown or missing:
        raise UserError(
            f"--hyp {path}: unknown {unknown}, missing {missing}; see {DEFAULT_HYPERPARAMETERS}"
        )
    try:
        return Hyperparameters(**document)
    except UserError as error:
        raise UserError(f"--hyp {path}: {error}") from error


@dataclass(frozen=True)
class RunConfig:
    """What train.py and val.py share."""

    backend: str | None
    weights: str
    data: str
    image_size: int
    batch_size: int
    device: str
    workers: int
    project: Path
    name: str
    exist_ok: bool
    bind_numa: bool
    timeout: float  # seconds

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise UserError(f"--timeout {self.timeout:g}; a number of seconds above 0 is needed")
        require_from("--img", self.image_size, 32)
        require_from("--batch-size", self.batch_size, 1)
        require_from("--workers", self.workers, 0)
        if self.name in ("", ".", "..") or set("/\0") & set(self.name):
            raise UserError(
                f"--name {self.name!r}; the name of one folder is needed, inside --project"
            )


@dataclass(frozen=True)
class TrainConfig(RunConfig):
    """The settings of one training run."""

    cfg: str
    nproc: int  # 0: a process for each of device
    hyp: Path
    epochs: int
    seed: int
    cosine: bool
    optimizer: str
    freeze: tuple[str, ...]
    remap_classes: bool
    bbox_iou_optim: bool
    multi_tensor_optimizer: bool
    cache: str  # "", "ram" or "disk"
    amp: str
    layout: str
    compile: bool
    sync_bn: bool
    half_gradients: bool
    replay: str  # EPOCH:STEP, or nothing
    resume: str  # "", NEWEST, AUTO, a run's folder or a state's file
    suspend_file: str
    time_limit: float | None  # minutes
    keep: int
    save_steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_from("--epochs", self.epochs, 1)
        require_from("--seed", self.seed, 0)
        require_from("--nproc", self.nproc, 0)
        if self.seed > MAX_SEED:
            raise UserError(f"--seed {self.seed}; at most {MAX_SEED} is accepted")
        if self.remap_classes and not self.weights:
            raise UserError("--remap-classes takes over classes of --weights; give both")
        require_from("--keep", self.keep, 1)
        require_from("--save-steps", self.save_steps, 0)
        if self.time_limit is not None and not self.time_limit > 0:
            raise UserError(f"--time-limit {self.time_limit:g}; minutes above 0 are needed")
        if self.replay:
            if self.resume:
                raise UserError("--replay runs one batch and --resume a run; give one of them")
            self.replayed()
            if not self.weights:
                raise UserError("--replay needs --weights with a checkpoint of that run")

    def replayed(self) -> tuple[int, int]:
        """Epoch and step of --replay, counted from 1; UserError for anything else."""
        epoch, separator, step = self.replay.partition(":")
        if not (separator and epoch.isdecimal() and step.isdecimal() and int(epoch) and int(step)):
            raise UserError(
                f"--replay {self.replay}: EPOCH:STEP is needed, counted from 1, such as 3:17"
            )
        return int(epoch), int(step)


@dataclass(frozen=True)
class ValConfig(RunConfig):
    """The settings of one validation."""

    confidence_threshold: float
    iou_threshold: float
    task: str
    class_agnostic: bool
    classes: tuple[int, ...] | None
    max_detections: int
    square: bool
    annotations: Path | None
    save_json: bool
    legacy_metric: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weights:
            raise UserError("--weights is needed: a file that docs/weights.md lists")
        require_from("--max-det", self.max_detections, 1)
        for flag, value in (
            ("--conf", self.confidence_threshold),
            ("--iou", self.iou_threshold),
        ):
            if not 0 <= value <= 1:
                raise UserError(f"{flag} {value}; a number from 0 to 1 is needed")


def require_from(flag: str, value: int, lowest: int) -> None:
    """UserError unless value is at least lowest."""
    if value < lowest:
        raise UserError(f"{flag} {value}; a whole number from {lowest} up is needed")


def parse_train_flags(
    arguments: Sequence[str] | None = None, program: str = "train.py"
) -> TrainConfig:
    """train.py's command line, by default sys.argv; exits with code 2 on an unknown flag."""
    return TrainConfig(**read_train_flags(arguments, program)[0])


def read_train_flags(
    arguments: Sequence[str] | None = None, program: str = "train.py"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of a command line by name: all of them, and those that it names."""
    parser = train_parser(program)
    values = vars(parser.parse_args(arguments))
    parser.set_defaults(**dict.fromkeys(values, _NOT_GIVEN))
    found = vars(parser.parse_args(arguments))
    values["freeze"] = tuple(values["freeze"])
    return values, {name: values[name] for name, x in found.items() if x is not _NOT_GIVEN}


def train_parser(program: str) -> argparse.ArgumentParser:
    """The flags of train.py."""
    parser = new_parser(program, "Train a YOLOv5 detector on OneFlow or PyTorch.")
    add_common_flags(parser, batch_size=16, project="runs/train")
    add = parser.add_argument
    add("--cfg", type=str.strip, default="", metavar="F", help="model YAML, to start from scratch; "
        "yolov5s without --weights")  # fmt: skip
    add("--nproc", type=int, default=0, metavar="N",
        help="processes that train together; 0: one for each of --device")  # fmt: skip
    add("--hyp", type=Path, default=DEFAULT_HYPERPARAMETERS, help="hyper-parameter YAML")
    add("--epochs", "--epoch", type=int, default=100, metavar="N", help="passes over the images")
    add("--cache", nargs="?", const="ram", default="", choices=CACHE_KINDS,
        help="keep decoded images for all workers: in memory, or a file in TMPDIR")  # fmt: skip
    add("--seed", type=int, default=0, help="of weights, order and augmentation")
    add("--optimizer", choices=OPTIMIZERS, default="SGD", help="hyp's momentum is Adam's beta1")
    add("--remap-classes", action="store_true",
        help="take the head of --weights over: boxes, objectness, classes by name")  # fmt: skip
    add("--cos-lr", dest="cosine", action="store_true", help="cosine instead of linear schedule")
    add("--freeze", nargs="+", default=["0"], metavar="LAYER", help="N: the first N layers; "
        "several numbers or names (model.24.m): these; BatchNorm statistics go on")  # fmt: skip
    add("--bbox_iou_optim", action="store_true",
        help="fused box loss, where it proves equal to the plain one on the device")  # fmt: skip
    add("--multi_tensor_optimizer", action="store_true",
        help="update all weights together, and their average; equal to rounding")  # fmt: skip
    add("--amp", choices=PRECISIONS, default="off", help="compute the network in half precision")
    add("--layout", choices=LAYOUTS, default="auto",
        help="of feature maps in memory; auto takes what the device gains from")  # fmt: skip
    add("--compile", action="store_true", help="compile the training step where the backend can")
    add("--sync-bn", action="store_true",
        help="BatchNorm statistics of all ranks' images instead of each rank's own")  # fmt: skip
    add("--half-gradients", action="store_true",
        help="send gradients from rank to rank as bfloat16, half the bytes")  # fmt: skip
    add("--replay", type=str.strip, default="", metavar="EPOCH:STEP",
        help="run this one batch from --weights and show where numbers stop to be finite, with "
        "the run's other flags")  # fmt: skip
    add("--resume", nargs="?", const=NEWEST, default="", metavar="R",
        help="go on with a run: the newest of --project and --name, a folder or a state's file; "
        "auto: the newest, or a new run where there is none")  # fmt: skip
    add("--suspend-file", default="", metavar="F", help="save the state and end once F is there")
    add("--time-limit", type=float, metavar="MIN", help="save the state and end after so long")
    add("--keep", type=int, default=2, metavar="N", help="states that stay on disk")
    add("--save-steps", type=int, default=0, metavar="N",
        help="save the state every N batches too; 0: after epochs only")  # fmt: skip
    return parser


def parse_val_flags(arguments: Sequence[str] | None = None) -> ValConfig:
    """val.py's command line, by default sys.argv; exits with code 2 on an unknown flag."""
    parser = new_parser("val.py", "Validate a detector: P, R, mAP50 and mAP50-95 per class.")
    add_common_flags(parser, batch_size=32, project="runs/val")
    add = parser.add_argument
    add("--conf", dest="confidence_threshold", type=float, default=0.001, help="lowest score")
    add("--iou", dest="iou_threshold", type=float, default=0.6, help="of non-maximum suppression")
    add("--agnostic-nms", dest="class_agnostic", action="store_true",
        help="a box suppresses boxes of all classes")  # fmt: skip
    add("--classes", nargs="+", type=int, metavar="C", help="detect and compare only these classes")
    add("--max-det", dest="max_detections", type=int, default=300, metavar="N",
        help="detections an image, at most")  # fmt: skip
    add("--square", action="store_true", help="square batches of side --img, in the dataset's "
        "order; without it batches are rectangular, as in YOLOv5")  # fmt: skip
    add("--annotations", type=Path, metavar="F", help="COCO instances JSON of the split: its "
        "objects, crowds and areas count, not the labels")  # fmt: skip
    add("--task", choices=("train", "val", "test"), default="val", help="split of the dataset")
    add("--save-json", action="store_true", help="write predictions.json, a COCO results file")
    add("--legacy-metric", action="store_true",
        help="print the figures as YOLOv5 prints them too, to compare with old logs")  # fmt: skip
    flags = parser.parse_args(arguments)
    flags.classes = tuple(flags.classes) if flags.classes else None
    return ValConfig(**vars(flags))


def run_settings(config: TrainConfig) -> dict[str, Any]:
    """Those that hold for a run, however often it was interrupted, as plain values."""
    return {k: v for k, v in as_document(config).items() if k not in PROCESS_SETTINGS}


def as_document(config: Any) -> dict[str, Any]:
    """A settings object as plain YAML and JSON values."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in dataclasses.asdict(config).items()
    }
