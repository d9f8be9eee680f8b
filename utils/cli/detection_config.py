"""The settings of detecting with trained weights, which val.py and detect.py share."""

from __future__ import annotations

from dataclasses import dataclass

from utils.cli.flags import flag, require_fraction, whole_from
from utils.cli.run_config import CommandConfig
from utils.errors import UserError


@dataclass(frozen=True)
class DetectionConfig(CommandConfig):
    """Which weights, and which of their predictions count as found."""

    weights: tuple[str, ...] = flag("model", "--weights", default=(), type=str.strip, nargs="+",
        metavar="F", help="files of docs/weights.md; several detect together")  # fmt: skip
    confidence_threshold: float = flag("detection", "--conf", "--conf-thres", default=0.001,
        metavar="X", check=require_fraction, help="lowest score")  # fmt: skip
    iou_threshold: float = flag("detection", "--iou", "--iou-thres", default=0.6, metavar="X",
        check=require_fraction, help="of NMS")  # fmt: skip
    class_agnostic: bool = flag("detection", "--agnostic-nms", default=False,
        help="a box removes boxes of all classes")  # fmt: skip
    classes: tuple[int, ...] | None = flag("detection", "--classes", default=None, type=int,
        nargs="+", metavar="C", help="detect only these classes, by number")  # fmt: skip
    max_detections: int = flag("detection", "--max-det", default=300, metavar="N",
        check=whole_from(1), help="detections an image, at most")  # fmt: skip

    augment: bool = flag("detection", "--augment", default=False,
        help="see each image three times, in other sizes and mirrored; takes about 2.5 times as "
        "long")  # fmt: skip
    half: bool = flag("backend and device", "--half", default=False,
        help="compute in half precision on a GPU; a line says where float32 is used "
        "instead")  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(self.weights):
            raise UserError("--weights is needed: a file that docs/weights.md lists")
