"""Settings of detection with trained weights, shared by val.py and detect.py."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from duet.utils.cli.flags import flag, require_fraction, whole_from, within
from duet.utils.cli.run_config import CommandConfig
from duet.utils.errors import UserError
from duet.utils.tiling import MAX_OVERLAP, MIN_OVERLAP, MIN_SIDE, OVERLAP, Tiling


def require_tile(name: str, value: int) -> None:
    """Raise UserError unless value is a tile size, or 0 for no tiles."""
    if value and value < MIN_SIDE:
        raise UserError(f"{name} {value}; accepted: 0, or at least {MIN_SIDE} pixels")


def require_known(name: str, classes: Iterable[int] | None, num_classes: int) -> None:
    """Raise UserError for a class number outside the model's classes."""
    for number in classes or ():
        if not 0 <= number < num_classes:
            raise UserError(f"{name} {number}; the model has classes 0 to {num_classes - 1}")


@dataclass(frozen=True)
class DetectionConfig(CommandConfig):
    """Weights, and how their predictions are filtered."""

    weights: tuple[str, ...] = flag("model", "--weights", default=(), type=str.strip, nargs="+",
        metavar="F", help="files of docs/en/weights.md; several form an ensemble")  # fmt: skip
    runtime: str = flag("model", "--runtime", default="", metavar="R",
        help="runtime of an exported file; default: by its name")  # fmt: skip
    confidence_threshold: float = flag("detection", "--conf", "--conf-thres", default=0.001,
        metavar="X", check=require_fraction, help="confidence threshold: lowest score of a "
        "detection")  # fmt: skip
    iou_threshold: float = flag("detection", "--iou", "--iou-thres", default=0.6, metavar="X",
        check=require_fraction, help="IoU threshold of NMS")  # fmt: skip
    class_agnostic: bool = flag("detection", "--agnostic-nms", default=False,
        help="class-agnostic NMS: a box removes boxes of all classes")  # fmt: skip
    classes: tuple[int, ...] | None = flag("detection", "--classes", default=None, type=int,
        nargs="+", metavar="C", help="detect only these classes, by number")  # fmt: skip
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
    is_size_given: bool = field(default=True, compare=False)  # False: use the task's default size

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
            raise UserError("--weights is required; accepted files: docs/en/weights.md")
