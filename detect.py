"""Detect objects in images, videos and streams, and save the results.

python detect.py --weights runs/train/exp/weights/best.safetensors --source images/
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before imports that may be slow or missing

import sys

from duet import backend
from duet.backend.devices import check_device
from duet.backend.select import choose
from duet.utils.data.sources.class_folders import ClassFolders
from duet.utils.data.sources.dataset import BUILT_INS, load_dataset
from duet.utils.detect.config import parse_detect_flags
from duet.utils.detect.media.finding import are_several, find_sources
from duet.utils.detect.pipeline.report import require_window
from duet.utils.processes.command import run_command
from duet.utils.processes.exit_status import EXIT_FAILED
from duet.utils.processes.start import ending_at_termination
from duet.utils.weights.load import load_all_to_detect


def main() -> None:
    config = parse_detect_flags()
    check_device(config.device, choose(config.backend))
    if config.view_images:
        require_window("--view-img")
    sources = find_sources(place_of(config.source), config.max_pixels, config.video_stride)
    backend.use(config.backend)
    several = are_several(sources, config.tiling)
    weights = load_all_to_detect(config.weights, config.runtime, several)
    from duet.models.detect.pipeline import run_detection

    with ending_at_termination():
        num_broken = run_detection(config, sources, weights)
    if num_broken:
        sys.exit(EXIT_FAILED)


def place_of(source: str) -> str:
    """Return the path of --source's images, creating those of a built-in dataset if missing."""
    if source not in BUILT_INS:
        return source
    (images,) = load_dataset(source, splits=("val",)).val
    return f"{images.folder}/*/*" if isinstance(images, ClassFolders) else str(images)


if __name__ == "__main__":
    run_command(main)
