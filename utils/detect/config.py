"""The settings of detect.py, and its command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utils.cli.absent_flags import DETECTION
from utils.cli.detection_config import DetectionConfig
from utils.cli.flags import add_flags, flag, new_parser, read_flags, whole_from

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
        help="show each image in a window; q or Esc in it ends the run")  # fmt: skip
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
    nosave: bool = flag("output", "--nosave", default=False,
        help="save no images and videos with boxes")  # fmt: skip
    line_thickness: int | None = flag("output", "--line-thickness", default=None, type=int,
        metavar="PX", check=whole_from(1, THICKEST_LINE),
        help="line thickness of boxes in pixels; default: by the size of the image")  # fmt: skip
    hide_labels: bool = flag("output", "--hide-labels", default=False,
        help="draw boxes without class names and scores")  # fmt: skip
    hide_conf: bool = flag("output", "--hide-conf", default=False,
        help="draw boxes without scores")  # fmt: skip


def parse_detect_flags(arguments: Sequence[str] | None = None) -> DetectConfig:
    """Parse detect.py's command line, by default sys.argv; exit with code 2 on an unknown flag."""
    parser = new_parser("detect.py", "Find objects in images and videos.", DETECTION)
    add_flags(parser, DetectConfig)
    values, given = read_flags(parser, arguments)
    return DetectConfig(**values, is_size_given="image_size" in given)
