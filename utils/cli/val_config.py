"""Settings of a validation, and val.py's command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duet.utils.cli.absent_flags import VALIDATION
from duet.utils.cli.flags import FlagValues, flag, read_flags, require_apart
from duet.utils.cli.run_config import DetectionConfig, RunConfig
from duet.utils.errors import UserError

SPLITS = ("train", "val", "test")
SPEED, STUDY = "speed", "study"  # both on split val
# As in the public val.py: the thresholds of detect.py.
THRESHOLDS = {SPEED: {"confidence_threshold": 0.25, "iou_threshold": 0.45}}
APART = (
    ("square", "tile", "square batches contain whole images"),
    ("single_class", "annotations", "COCO annotations distinguish classes"),
    ("single_class", "classes", "only one class is left to select"),
)


def _require_task(name: str, value: str) -> None:
    if value not in (*SPLITS, SPEED):
        more = ". For a study, run val.py with each --img" if value == STUDY else ""
        raise UserError(f"{name} {value}; accepted: {', '.join((*SPLITS, SPEED))}{more}")


@dataclass(frozen=True)
class ValConfig(DetectionConfig, RunConfig):
    batch_size: int = 32
    project: Path = Path("runs/val")
    task: str = flag("data", "--task", default="val", check=_require_task, metavar="T",
        help="dataset split; speed: val with the thresholds of detect.py")  # fmt: skip
    square: bool = flag("data", "--square", default=False,
        help="square batches of size --img, in dataset order; default: rectangular batches, as in "
        "YOLOv5")  # fmt: skip
    annotations: Path | None = flag("data", "--annotations", default=None, type=Path,
        metavar="F", help="COCO instances JSON of the split, whose objects, crowds and areas "
        "replace the labels")  # fmt: skip
    single_class: bool = flag("detection", "--single-cls", default=False,
        help="treat all objects and all detections as one class")  # fmt: skip
    save_json: bool = flag("output", "--save-json", default=False,
        help="save predictions.json, a COCO results file")  # fmt: skip
    legacy_metric: bool = flag("output", "--legacy-metric", default=False,
        help="also print metrics as computed by YOLOv5, for comparison with old logs")  # fmt: skip

    @property
    def split(self) -> str:
        return self.task if self.task in SPLITS else "val"

    def usual(self) -> FlagValues:
        return {**super().usual(), **THRESHOLDS.get(self.task, {})}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_apart(self, APART)


def parse_val_flags(arguments: Sequence[str] | None = None) -> ValConfig:
    """Parse val.py's command line, by default sys.argv; UserError for an unknown flag."""
    about = "Validate a model: metrics per class and over all."
    values, given = read_flags(ValConfig, "val.py", about, arguments, VALIDATION)
    thresholds = THRESHOLDS.get(values["task"], {})
    return ValConfig(**{**values, **thresholds, **given})
