"""The settings of detect.py, from its command line or from a call in another program."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from duet.utils.cli.absent_flags import DETECTION
from duet.utils.cli.flags import flag, read_flags, whole_from
from duet.utils.cli.run_config import DetectionConfig, known_classes, whole
from duet.utils.errors import UserError, brief

THICKEST_LINE = 1000  # pixels
Drawing = tuple[int | None, bool, bool]  # line width, labels, scores: as `ImageResult.plot` takes


@dataclass(frozen=True)
class DetectConfig(DetectionConfig):
    """The settings of one run of detect.py; defaults are the public YOLOv5's."""

    source: str = flag("data", "--source", default="shapes", metavar="S",
        help="file, folder, pattern, list file, video, camera or URL; shapes, shapes-seg or "
        "shapes-cls: the val images of a built-in dataset")  # fmt: skip
    video_stride: int = flag("data", "--vid-stride", default=1, metavar="N", check=whole_from(1),
        help="use every Nth frame of a video")  # fmt: skip
    view_images: bool = flag("output", "--view-img", default=False,
        help="show each image in a window; q or Esc quits")  # fmt: skip
    track: bool = flag("detection", "--track", default=False,
        help="track objects: number them over the frames of a video, or over the images of a "
        "folder")  # fmt: skip
    batch_size: int = 1
    confidence_threshold: float = 0.25
    iou_threshold: float = 0.45
    max_detections: int = 1000
    project: Path = Path("runs/detect")
    save_csv: bool = flag("output", "--save-csv", default=False,
        help="save predictions.csv: image, class name, score")  # fmt: skip
    save_json: bool = flag("output", "--save-json", default=False,
        help="save detections.json: all detections, in pixels")  # fmt: skip
    save_crop: bool = flag("output", "--save-crop", default=False,
        help="save each detected object as an image, one folder per class")  # fmt: skip
    visualize: int | None = flag("output", "--visualize", default=None, type=int, nargs="?",
        const=-1, metavar="LAYER", check=whole_from(-1),
        help="save a heat map of where the network looks (Eigen-CAM), of a layer by its number; "
        "without LAYER: the last one before the head")  # fmt: skip
    nosave: bool = flag("output", "--nosave", default=False,
        help="save no images and videos with boxes")  # fmt: skip
    line_thickness: int | None = flag("output", "--line-thickness", default=None, type=int,
        metavar="PX", check=whole_from(1, THICKEST_LINE),
        help="line thickness of boxes in pixels; default: depends on the image size")  # fmt: skip
    hide_labels: bool = flag("output", "--hide-labels", default=False,
        help="draw boxes without class names and scores")  # fmt: skip
    hide_conf: bool = flag("output", "--hide-conf", default=False,
        help="draw boxes without scores")  # fmt: skip

    @property
    def drawing(self) -> Drawing:
        return self.line_thickness, not self.hide_labels, not self.hide_conf


def parse_detect_flags(arguments: Sequence[str] | None = None) -> DetectConfig:
    """Parse detect.py's command line, by default sys.argv; exit with code 2 on an unknown flag."""
    about = "Find objects in images and videos."
    return DetectConfig(**read_flags(DetectConfig, "detect.py", about, arguments, DETECTION)[0])


def call_config(
    class_names: Sequence[str], classes: Iterable[int | str] | None = None, **options: object
) -> DetectConfig:
    """Return settings for the options of a call; None for the default.

    Raises:
        UserError: names an invalid argument, or its flag.
        TypeError: an unknown option.
    """
    if unknown := options.keys() - OPTIONS.keys():
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    given = {name: value for name, value in options.items() if value is not None}
    fields = {OPTIONS[name][0]: OPTIONS[name][1](name, value) for name, value in given.items()}
    numbers = known_classes("classes", classes, class_names)
    return DetectConfig(weights=("given",), classes=numbers, **fields)


def _visualized(name: str, value: bool | int) -> int | None:
    """Return --visualize for the argument: True for the layer before the head."""
    if isinstance(value, bool):
        return -1 if value else None
    return whole(name, value)


def _number(name: str, value: object) -> float:
    try:
        return float(value if isinstance(value, Real) else "")
    except (ValueError, OverflowError):
        raise UserError(f"{name} {brief(value)}; accepted: a number") from None


def _switch(name: str, value: object) -> bool:
    return bool(value)


# Options of a call: the field, and what converts a value.
OPTIONS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "size": ("image_size", whole),
    "conf": ("confidence_threshold", _number),
    "iou": ("iou_threshold", _number),
    "max_det": ("max_detections", whole),
    "agnostic": ("class_agnostic", _switch),
    "augment": ("augment", _switch),
    "tile": ("tile", whole),
    "overlap": ("overlap", _number),
    "batch": ("batch_size", whole),
    "track": ("track", _switch),
    "visualize": ("visualize", _visualized),
}
