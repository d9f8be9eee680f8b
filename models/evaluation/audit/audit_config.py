"""Settings and command line of `duet audit`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duet.utils.cli.flags import flag, read_flags, require_fraction, same_flag, whole_from
from duet.utils.cli.run_config import CommandConfig, DetectionConfig, RunConfig
from duet.utils.cli.val_config import SPLITS
from duet.utils.errors import UserError
from duet.utils.project import WEIGHTS_FILES


@dataclass(frozen=True)
class AuditConfig(CommandConfig):
    """Settings of an audit."""

    batch_size: int = 32
    project: Path = Path("runs/audit")
    data: str = flag("data", "--data", default="", metavar="D",
        help="dataset YAML, folder or annotation file, or the built-in 'shapes'")  # fmt: skip
    task: str = flag("data", "--task", default="val", choices=SPLITS,
        help="split to audit; a model trained on it has learned some of its mistakes and finds "
        "fewer of them")  # fmt: skip
    train_part: float | str | None = same_flag(RunConfig, "train_part")
    workers: int | None = same_flag(RunConfig, "workers")
    weights: tuple[str, ...] = same_flag(DetectionConfig, "weights",
        help="weights files of trainings or of YOLOv5; several form an ensemble")  # fmt: skip
    image_size: int | None = same_flag(DetectionConfig, "image_size")
    augment: bool = same_flag(DetectionConfig, "augment")
    half: bool = same_flag(DetectionConfig, "half")
    lowest_score: float | None = flag("detection", "--conf", "--conf-thres", default=None,
        type=float, metavar="X", check=require_fraction,
        help="lowest score of a finding; default: a measured threshold for each kind of "
        "finding")  # fmt: skip
    top: int = flag("output", "--top", default=48, metavar="N", check=whole_from(1),
        help="crops per kind of finding on the page, highest scores first; the CSV lists "
        "all")  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data:
            raise UserError("--data is required: the dataset to audit")
        if not any(self.weights):
            raise UserError(f"--weights is required: {WEIGHTS_FILES}")


def parse_audit_flags(arguments: Sequence[str] | None = None) -> AuditConfig:
    """Parse the command line, by default sys.argv; exit with code 2 on an unknown flag."""
    about = "Audit the labels of a dataset with a trained model."
    return AuditConfig(**read_flags(AuditConfig, "duet audit", about, arguments)[0])
