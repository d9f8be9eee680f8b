"""Write several graphs in one process, because each takes a second to start.

`python -m tests.export.recorded_files FOLDER`; standard input has a JSON object that maps the name
of each graph to flags of export.py. FOLDER/NAME.onnx are left, and what the process imported.
"""

# ruff: noqa: E402
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from duet import backend
from duet.utils.project import PROJECT

if __name__ == "__main__":
    backend.use("onnx")  # before the models, whose classes derive from the backend's

from duet.models.export.recorded import recorded_graph
from duet.utils.export.config import parse_export_flags
from duet.utils.weights.load import load_weights

MODULES = "modules.json"


def write_graphs(folder: Path, flags: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Write a graph of each line of flags, by name, into a folder; return the files."""
    command = [sys.executable, "-m", "tests.export.recorded_files", str(folder)]
    done = subprocess.run(
        command, cwd=PROJECT, input=json.dumps(flags), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return {name: folder / f"{name}.onnx" for name in flags}


def main() -> None:
    folder = Path(sys.argv[1])
    for name, words in json.load(sys.stdin).items():
        config = parse_export_flags(words)
        (folder / f"{name}.onnx").write_bytes(recorded_graph(config, load_weights(config.weights)))
    (folder / MODULES).write_text(json.dumps(sorted(sys.modules)))


if __name__ == "__main__":
    main()
