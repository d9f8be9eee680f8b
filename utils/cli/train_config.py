"""Settings of a training run, its recipe first, and train.py's command line."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duet.utils.cli.absent_flags import TRAINING, VALUE
from duet.utils.cli.flags import (
    FlagValues,
    automatic_switch,
    flag,
    read_flags,
    require_apart,
    require_fraction,
    whole_from,
    within,
)
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, Hyperparameters
from duet.utils.cli.run_config import RunConfig, as_document, image_size_flag
from duet.utils.errors import UserError
from duet.utils.files.json_files import Document
from duet.utils.strengths import AugmentConfig
from duet.utils.tasks import TASKS
from duet.utils.text import count

MAX_SEED = 2**63 - 1
OPTIMIZERS = ("SGD", "Adam", "AdamW")
require_seed = whole_from(0, MAX_SEED)
LARGEST_MASK_RATIO = 32  # leaves one pixel of the smallest --img
APART = (
    ("rect", "image_weights", "--rect orders the images by aspect ratio"),
    ("rect", "close_mosaic", "--rect makes no mosaics"),
    ("multi_scale", "compile", "each size would be recompiled"),
    ("rect", "compile", "each shape would be recompiled"),
    ("image_weights", "no_val", "images are weighted by the metrics of each validation"),
    ("evolve", "no_save", "a search keeps its best weights"),
    ("evolve", "resume", "the same command continues a search automatically"),
)
PRECISIONS = ("auto", "off", "bf16", "fp16", "bf16-always")
LAYOUTS = ("auto", "contiguous", "channels-last")
NEWEST, AUTO = "newest", "auto"  # values of --resume besides a folder or file
AUTO_BATCH = -1  # value of --batch-size that selects measuring
APART_IN_SEVERAL_PROCESSES = (
    ("compile", "sync_bn", "synchronized BatchNorm cannot be compiled"),
    ("micro_batch", "sync_bn", "processes would wait for each other's pieces"),
)
# Settings of a process rather than of the run.
PROCESS_SETTINGS = {"resume", "suspend_file", "time_limit", "nproc", "timeout", "bind_numa"}
# Settings that may change during a run. `data` may move: its content is compared.
FREE = PROCESS_SETTINGS | {
    "backend", "device", "workers", "cache", "data", "project", "name", "exist_ok", "keep",
    "save_steps", "micro_batch", "patience", "hours", "save_period", "no_save", "no_plots",
    "loggers", "allow_missing",
}  # fmt: skip


def require_batch_size(name: str, value: int) -> None:
    if value != AUTO_BATCH and value < 1:
        raise UserError(f"{name} {value}; accepted: a whole number of at least 1, or -1 to measure")


@dataclass(frozen=True)
class TrainConfig(RunConfig):
    image_size: int = image_size_flag(default=640, help="long side of the images; the short side "
        "follows from the image. Default for classifiers: 224")  # fmt: skip
    hyp: Path = flag("recipe", "--hyp", default=DEFAULT_HYPERPARAMETERS,
        help="hyper-parameter YAML, or a name in data/hyps such as small")  # fmt: skip
    epochs: int = flag("recipe", "--epochs", default=100, metavar="N",
        check=whole_from(1), help="number of epochs")  # fmt: skip
    seed: int = flag("recipe", "--seed", default=0, check=require_seed,
        help="random seed of weights, order and augmentation")  # fmt: skip
    cosine: bool = flag("recipe", "--cos-lr", default=False,
        help="cosine instead of linear learning rate schedule")  # fmt: skip
    optimizer: str = flag("recipe", "--optimizer", default="SGD", choices=OPTIMIZERS,
        help="optimizer; for Adam and AdamW the momentum of --hyp is beta1")  # fmt: skip
    override: tuple[str, ...] = flag("recipe", "--override", default=(), type=str, nargs="+",
        metavar="KEY=VALUE", help="hyper-parameters that replace those of --hyp")  # fmt: skip
    patience: int = flag("recipe", "--patience", default=100, metavar="N", check=whole_from(0),
        help="stop after this many epochs without a better one; 0: never")  # fmt: skip
    hours: float = flag("recipe", "--time", default=0.0, metavar="HOURS",
        check=within(0, kind="a number of hours"),
        help="stop after the epoch in which the epochs have taken this many hours in all; the "
        "learning rate still follows --epochs; 0: never")  # fmt: skip
    label_smoothing: float = flag("recipe", "--label-smoothing", default=0.0, metavar="F",
        check=require_fraction, help="label smoothing of the class targets")  # fmt: skip
    mask_ratio: int = flag("recipe", "--mask-ratio", default=4, metavar="N",
        check=whole_from(1, LARGEST_MASK_RATIO),
        help="segmentation: how many times smaller than the images the masks are")  # fmt: skip
    no_overlap: bool = flag("recipe", "--no-overlap", default=False,
        help="segmentation: one mask per object, whole even where others cover it")  # fmt: skip
    dropout: float = flag("recipe", "--dropout", default=0.0, metavar="P",
        check=within(0, 1, below=True),
        help="dropout probability before the last layer of a classifier")  # fmt: skip
    no_auto_anchor: bool = flag("recipe", "--noautoanchor", default=False,
        help="keep the anchors of --cfg or --weights, even if they fit the labels "
        "badly")  # fmt: skip
    multi_scale: bool = flag("recipe", "--multi-scale", default=False,
        help="draw the image size of each batch between 0.5 and 1.5 times --img")  # fmt: skip
    rect: bool = flag("recipe", "--rect", default=False,
        help="rectangular batches of images with similar aspect ratios; no mosaics, no "
        "shuffling")  # fmt: skip
    single_class: bool = flag("recipe", "--single-cls", default=False,
        help="treat all objects as one class")  # fmt: skip
    image_weights: bool = flag("recipe", "--image-weights", default=False,
        help="show images more often if their classes are detected badly")  # fmt: skip
    fraction: float = flag("recipe", "--fraction", default=1.0, metavar="F",
        check=within(0, 1, above=True), help="train on this fraction of the images")  # fmt: skip
    close_mosaic: int = flag("recipe", "--close-mosaic", default=0, metavar="N",
        check=whole_from(0), help="no mosaics and no mixup in the last N epochs")  # fmt: skip
    albumentations: float = flag("recipe", "--albumentations", default=0.0, nargs="?", const=0.01,
        metavar="P", check=require_fraction, help="probability of each of Blur, MedianBlur, ToGray "
        "and CLAHE; without P: 0.01, as in YOLOv5")  # fmt: skip
    evolve: int = flag("recipe", "--evolve", default=0, nargs="?", const=300, metavar="N",
        check=whole_from(0), help="search hyper-parameters with Optuna in N trainings (without N: "
        "300); the same command continues a search")  # fmt: skip
    storage: str = flag("recipe", "--storage", default="", metavar="F",
        help="file of the search of --evolve, which several machines may share; default: one in "
        "its folder")  # fmt: skip

    allow_missing: bool = flag("data", "--allow-missing", default=False,
        help="train even if more than a tenth of the images of a split is left out")  # fmt: skip
    batch_size: int = flag("data", "--batch-size", "--batch", default=16, metavar="N",
        check=require_batch_size,
        help="images per batch, over all processes; -1: as many as fit, by measuring")  # fmt: skip

    weights: str = flag("model", "--weights", default="", type=str.strip, metavar="F",
        help="initial weights, of a training or of YOLOv5")  # fmt: skip
    cfg: str = flag("model", "--cfg", default="", type=str.strip, metavar="F",
        help="model YAML or its name, to train from scratch; default without --weights: "
        "yolov5s")  # fmt: skip
    task: str = flag("model", "--task", default="", choices=tuple(TASKS),
        help="task to train for, if not defined by --cfg or --weights, or to replace that of "
        "--weights")  # fmt: skip
    cutoff: int = flag("model", "--cutoff", default=0, metavar="N", check=whole_from(0),
        help="number of layers of a classifier built from another model: the first N - 1 layers "
        "of --cfg or --weights, then the head; 0: the backbone, with the head in place of its "
        "last layer")  # fmt: skip
    freeze: tuple[str, ...] = flag("model", "--freeze", default=("0",), type=str, nargs="+",
        metavar="LAYER", help="layers to freeze: N for the first N layers, or several numbers or "
        "names (model.24.m); BatchNorm statistics are still updated")  # fmt: skip
    remap_classes: bool = flag("model", "--remap-classes", default=False,
        help="keep the head of --weights: boxes, objectness, and classes by name")  # fmt: skip
    bbox_iou_optim: bool | None = automatic_switch("speed", "--bbox_iou_optim",
        help="fused box loss, equal up to rounding; without the flag: on a GPU")  # fmt: skip
    multi_tensor_optimizer: bool | None = automatic_switch("speed", "--multi_tensor_optimizer",
        help="update all weights and their EMA in one pass, equal up to rounding; without the "
        "flag: on a GPU")  # fmt: skip
    device_augment: bool | None = automatic_switch("speed", "--device-augment",
        help="change colours and flip images on the device, compiled, equal up to one grey "
        "level; without the flag: on a GPU with Triton")  # fmt: skip
    cache: str = flag("speed", "--cache", default="", nargs="?", const="ram",
        choices=("ram", "disk"),
        help="cache decoded images for all workers: in memory (ram), or in a file in TMPDIR "
        "(disk)")  # fmt: skip
    amp: str = flag("speed", "--amp", default="auto", choices=PRECISIONS,
        help="mixed precision: compute the network in half precision; auto: if faster on the GPU; "
        "off: exact float32, if the backend supports it; bf16: on a CPU only if faster there, "
        "bf16-always: even if slower")  # fmt: skip
    layout: str = flag("speed", "--layout", default="auto", choices=LAYOUTS,
        help="memory layout of feature maps; auto: the faster one on the device")  # fmt: skip
    compile: bool = flag("speed", "--compile", default=False,
        help="compile the training step, if the backend supports it")  # fmt: skip
    micro_batch: int = flag("speed", "--micro-batch", default=0, metavar="N", check=whole_from(0),
        help="images per forward pass of a process; gradients are accumulated over the batch. "
        "0: all")  # fmt: skip
    sync_bn: bool = flag("several processes", "--sync-bn", default=False,
        help="compute BatchNorm statistics over all ranks instead of each rank")  # fmt: skip
    resume: str = flag("interruption", "--resume", default="", nargs="?", const=NEWEST,
        metavar="R",
        help="continue a run: the newest unfinished one in --project, or a run's folder or state "
        "file; auto: the newest one called --name, or a new run if there is none")  # fmt: skip
    suspend_file: str = flag("interruption", "--suspend-file", default="", metavar="F",
        help="save the state and stop once the file F exists")  # fmt: skip
    time_limit: float | None = flag("interruption", "--time-limit", default=None, type=float,
        metavar="MIN", check=within(0, kind="a number of minutes", above=True),
        help="save the state and stop after this many minutes")  # fmt: skip
    keep: int = flag("interruption", "--keep", default=2, metavar="N", check=whole_from(1),
        help="number of states to keep on disk")  # fmt: skip
    save_steps: int = flag("interruption", "--save-steps", default=0, metavar="N",
        check=whole_from(0),
        help="also save the state every N batches; 0: only after epochs")  # fmt: skip

    save_period: int = flag("output", "--save-period", default=-1, metavar="N",
        check=whole_from(-1), help="keep the weights of epochs 0, N, 2N, ... of results.csv; below "
        "1: none")  # fmt: skip
    no_save: bool = flag("output", "--nosave", default=False,
        help="keep only the last weights, not the best; states for resuming exist only during "
        "the run")  # fmt: skip
    no_val: bool = flag("output", "--noval", default=False,
        help="validate only after the last epoch, which is then the best; --patience has no "
        "effect")  # fmt: skip
    no_plots: bool = flag("output", "--noplots", default=False, help="draw no plots")  # fmt: skip
    loggers: tuple[str, ...] = flag("output", "--loggers", default=(), type=str, nargs="+",
        metavar="LOGGER",
        help="log metrics, in addition to results.csv, to tensorboard, wandb, or your own "
        "module:Class")  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        require_apart(self, APART)
        self.check_processes(1)
        if self.no_save and self.save_period > 0:
            raise UserError(
                "--nosave keeps only the last weights, --save-period those of other epochs; remove "
                "one of them"
            )
        if self.remap_classes and not self.weights:
            raise UserError("--remap-classes reuses classes of --weights; add --weights")
        if self.storage and not self.evolve:
            raise UserError("--storage is the file of a search; add --evolve, or leave it out")
        if self.batch_size == AUTO_BATCH and self.micro_batch:
            raise UserError("--micro-batch needs a fixed --batch-size, not -1")

    def augmentation(self, hyp: Hyperparameters) -> AugmentConfig:
        """Return the augmentation settings, including transforms."""
        return dataclasses.replace(hyp.augmentation(), transforms=self.albumentations)

    @property
    def mosaic_epochs(self) -> int | None:
        """Epochs with mosaics, by --close-mosaic; None: all."""
        return max(self.epochs - self.close_mosaic, 0) if self.close_mosaic else None

    def check_processes(self, number: int) -> None:
        if self.batch_size != AUTO_BATCH and self.batch_size % number:
            processes = count(number, "process", "processes")
            lower = self.batch_size // number * number
            fitting = [str(size) for size in (lower, lower + number) if size]
            raise UserError(
                f"--batch-size {self.batch_size} is the total over {processes} and must be "
                f"divisible by {number}; use {' or '.join(fitting)}"
            )
        if number > 1:
            require_apart(self, APART_IN_SEVERAL_PROCESSES)


def parse_train_flags(
    arguments: Sequence[str] | None = None, program: str = "train.py"
) -> TrainConfig:
    """Parse train.py's command line, by default sys.argv; UserError for an unknown flag."""
    return TrainConfig(**read_train_flags(arguments, program)[0])


def read_train_flags(
    arguments: Sequence[str] | None = None,
    program: str = "train.py",
    about: str = "Train a YOLOv5 detector on OneFlow or PyTorch.",
) -> tuple[FlagValues, FlagValues]:
    names = [field.name for field in dataclasses.fields(Hyperparameters)]
    overrides = {f"--{x.replace('_', '-')}": f"--override {x}={VALUE}" for x in names}
    return read_flags(TrainConfig, program, about, arguments, {**overrides, **TRAINING})


def run_settings(config: TrainConfig) -> Document:
    return {k: v for k, v in as_document(config).items() if k not in PROCESS_SETTINGS}
