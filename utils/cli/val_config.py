"""The settings of a validation, and val.py's command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utils.cli.absent_flags import VALIDATION
from utils.cli.detection_config import DetectionConfig
from utils.cli.flags import add_flags, flag, new_parser, read_flags
from utils.cli.run_config import RunConfig
from utils.errors import UserError

SPLITS = ("train", "val", "test")
TIMINGS = ("speed", "study")  # of the public val.py


def require_split(name: str, value: str) -> None:
    """Raise UserError unless value is a split of a dataset."""
    if value in TIMINGS:
        raise UserError(f"{name} {value} is not in this version: python -m benchmarks.val times it")
    if value not in SPLITS:
        raise UserError(f"{name} {value}; {', '.join(SPLITS)} are accepted")


@dataclass(frozen=True)
class ValConfig(DetectionConfig, RunConfig):
    """The settings of one validation."""

    batch_size: int = 32
    project: Path = Path("runs/val")
    task: str = flag("data", "--task", default="val", metavar="{train,val,test}",
        check=require_split, help="split of the dataset")  # fmt: skip
    square: bool = flag("data", "--square", default=False,
        help="square batches of side --img, in the dataset's order; without it batches are "
        "rectangular, as in YOLOv5")  # fmt: skip
    annotations: Path | None = flag("data", "--annotations", default=None, type=Path,
        metavar="F", help="COCO instances JSON of the split: its objects, crowds and areas "
        "count, not the labels")  # fmt: skip
    single_class: bool = flag("detection", "--single-cls", default=False,
        help="take all objects, and all that is found, for one class")  # fmt: skip
    save_json: bool = flag("output", "--save-json", default=False,
        help="write predictions.json, a COCO results file")  # fmt: skip
    legacy_metric: bool = flag("output", "--legacy-metric", default=False,
        help="print the figures as YOLOv5 prints them too, to compare with old logs")  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.square and self.tile:
            raise UserError("--square is for whole images; leave it out, or --tile")
        if self.single_class and (self.classes is not None or self.annotations is not None):
            other = "--annotations" if self.annotations is not None else "--classes"
            raise UserError(
                f"--single-cls with {other}, which tells classes apart; leave one of them out"
            )


def parse_val_flags(arguments: Sequence[str] | None = None) -> ValConfig:
    """Parse val.py's command line, by default sys.argv; exit with code 2 on an unknown flag."""
    about = "Validate a detector: P, R, mAP50 and mAP50-95 per class."
    parser = new_parser("val.py", about, absent=VALIDATION)
    add_flags(parser, ValConfig)
    return ValConfig(**read_flags(parser, arguments)[0])
