"""`python -m models.export.graph_file`: weights -> the ONNX graph of their model.

A process has one backend, and this one records: `job.py` starts it, bound to the backend of the
model that it compares the graph with. After: `utils/export/formats.py` converts the graph.

    python -m models.export.graph_file OUT.onnx FLAGS
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import sys
from pathlib import Path

import backend
from utils.cli.export_config import parse_export_flags
from utils.files.atomic import atomic_file
from utils.processes.command import run_command
from utils.weights.load import load_weights

BACKEND = "onnx"


def main() -> None:
    path, *words = sys.argv[1:]
    config = parse_export_flags(words)
    checkpoint = load_weights(config.weights)
    backend.use(BACKEND)
    from models.export.recorded import recorded_graph

    content = recorded_graph(config, checkpoint)
    with atomic_file(Path(path)) as file:
        file.write(content)


if __name__ == "__main__":
    run_command(main)
