"""Export weights to files for other runtimes, each verified against the model.

python export.py --weights runs/train/exp/weights/best.safetensors --include onnx openvino
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before imports that may be slow or missing

import sys
from collections.abc import Sequence
from typing import Any

from duet import backend
from duet.backend.devices import check_device
from duet.backend.select import choose
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.export.config import parse_export_flags
from duet.utils.export.formats import check_export
from duet.utils.processes.command import run_command
from duet.utils.processes.exit_status import EXIT_FAILED
from duet.utils.text import say
from duet.utils.weights.load import load_weights


def main() -> None:
    if run().failed:
        sys.exit(EXIT_FAILED)


def run(arguments: Sequence[str] | None = None) -> Any:
    """Export with flags, by default from sys.argv; return models/export/job.py's `Exports`."""
    config = parse_export_flags(arguments)
    check_device(config.device)
    check_export(config.weights, config.include, choose(config.backend), config.suffix)
    weights = load_weights(config.weights)
    data = load_dataset(config.data, splits=("val",)) if config.data else None
    samples = load_split(data, "val") if data else None
    backend.use(config.backend)
    from duet.models.export.dataset import Dataset
    from duet.models.export.job import next_commands, run_export

    found = None
    if data and samples:
        found = Dataset(config.data, data.class_names, samples, data.is_of_folders)
    exports = run_export(config, weights, found)
    say(*next_commands(config, exports.files))
    return exports


if __name__ == "__main__":
    run_command(main)
