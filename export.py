"""Export: weights -> files for other runtimes, each verified against the model.

python export.py --weights runs/train/exp/weights/best.safetensors --include onnx openvino
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import backend
from utils.cli.export_config import parse_export_flags
from utils.processes.command import run_command
from utils.state.start_checks import check_export
from utils.weights.load import load_weights


def main() -> None:
    config = parse_export_flags()
    check_export(config)
    weights = load_weights(config.weights)
    backend.use(config.backend)
    from models.export.job import run_export

    run_export(config, weights)


if __name__ == "__main__":
    run_command(main)
