"""Detect: weights and images or videos -> boxes drawn on them, and files of what was found.

python detect.py --weights runs/train/exp/weights/best.safetensors --source images/
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import backend
from utils.cli.detect_config import parse_detect_flags
from utils.media.finding import find_sources
from utils.processes.command import run_command
from utils.state.start_checks import check_detection
from utils.weights.load import load_weights


def main() -> None:
    config = parse_detect_flags()
    check_detection(config)
    sources = find_sources(config.source, config.max_pixels)
    weights = [load_weights(path) for path in config.weights]
    backend.use(config.backend)
    from models.inference.job import run_detection

    run_detection(config, sources, weights)


if __name__ == "__main__":
    run_command(main)
