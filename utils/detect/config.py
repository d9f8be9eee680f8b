"""The settings of detect.py, from its command line or from a call in another program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from duet.utils.cli.absent_flags import DETECTION
from duet.utils.cli.flags import add_flags, flag, new_parser, read_flags, whole_from
from duet.utils.cli.run_config import DetectionConfig, known_classes, whole
from duet.utils.errors import UserError, brief

THICKEST_LINE = 1000  # pixels


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


def parse_detect_flags(arguments: Sequence[str] | None = None) -> DetectConfig:
    """Parse detect.py's command line, by default sys.argv; exit with code 2 on an unknown flag."""
    parser = new_parser("detect.py", "Find objects in images and videos.", DETECTION)
    add_flags(parser, DetectConfig)
    return DetectConfig(**read_flags(parser, arguments)[0])


def call_config(
    class_names: Sequence[str],
    size: int | None = None,
    conf: float = DetectConfig.confidence_threshold,
    iou: float = DetectConfig.iou_threshold,
    max_det: int = DetectConfig.max_detections,
    classes: Iterable[int | str] | None = None,
    agnostic: bool = False,
    augment: bool = False,
    tile: int = DetectConfig.tile,
    overlap: float | None = DetectConfig.overlap,
    batch: int = DetectConfig.batch_size,
    track: bool = False,
    visualize: bool | int = False,
) -> DetectConfig:
    """Return settings; UserError names an invalid argument, or its flag; size None: default."""
    return DetectConfig(
        weights=("given",),
        image_size=None if size is None else whole("size", size),
        confidence_threshold=_number("conf", conf),
        iou_threshold=_number("iou", iou),
        max_detections=whole("max_det", max_det),
        classes=known_classes("classes", classes, class_names),
        class_agnostic=bool(agnostic),
        augment=bool(augment),
        tile=whole("tile", tile),
        overlap=None if overlap is None else _number("overlap", overlap),
        batch_size=whole("batch", batch),
        track=track,
        visualize=visualized(visualize),
    )


def visualized(value: bool | int) -> int | None:
    """Return --visualize for the argument `visualize`: True for the layer before the head."""
    if isinstance(value, bool):
        return -1 if value else None
    return whole("visualize", value)


def _number(name: str, value: Any) -> float:
    try:
        return float(value if isinstance(value, Real) else "")
    except (ValueError, OverflowError):
        raise UserError(f"{name} {brief(value)}; accepted: a number") from None
