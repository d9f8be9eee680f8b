"""The settings of detect.py, and its command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utils.cli.detection_config import DetectionConfig
from utils.cli.flags import add_flags, flag, new_parser, read_flags


@dataclass(frozen=True)
class DetectConfig(DetectionConfig):
    """The settings of one run of detect.py; defaults are the public YOLOv5's."""

    source: str = flag("data", "--source", default="datasets/shapes/images/val", metavar="S",
        help="file, folder, pattern, list file, video, camera or URL")  # fmt: skip
    track: bool = flag("detection", "--track", default=False,
        help="number the objects of a video; a folder of images counts as one")  # fmt: skip
    batch_size: int = 1
    confidence_threshold: float = 0.25
    iou_threshold: float = 0.45
    max_detections: int = 1000
    project: Path = Path("runs/detect")


def parse_detect_flags(arguments: Sequence[str] | None = None) -> DetectConfig:
    """Parse detect.py's command line, by default sys.argv; exit with code 2 on an unknown flag."""
    parser = new_parser("detect.py", "Find objects in images and videos.")
    add_flags(parser, DetectConfig)
    return DetectConfig(**read_flags(parser, arguments)[0])
