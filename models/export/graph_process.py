"""Record a model as an ONNX graph in a process of its own, because a process has one backend.

python -m duet.models.export.graph_process OUT.onnx FLAGS
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before imports that may be slow or missing

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

from duet import backend
from duet.utils.errors import UserError, WorkerError
from duet.utils.export.config import ExportConfig, parse_export_flags
from duet.utils.processes.command import run_command
from duet.utils.processes.start import EXIT_USER_ERROR
from duet.utils.project import PROJECT
from duet.utils.system.children import ask_for_signal_when_parent_ends, child_options
from duet.utils.weights.load import load_weights

MODULE = "duet.models.export.graph_process"


def write_graph(config: ExportConfig, path: Path) -> None:
    """Record the weights of a configuration as an ONNX graph in a child process.

    Raises:
        UserError: raised by the child.
        WorkerError: it failed or was killed; the message has its traceback.
    """
    config = dataclasses.replace(config, weights=os.path.abspath(config.weights))
    done = subprocess.run(
        [sys.executable, "-m", MODULE, str(path.absolute()), *config.words()],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="locale",
        errors="replace",
        check=False,
        **child_options(ask_for_signal_when_parent_ends, apart=False),
    )
    reported = done.stderr.strip()
    if done.returncode == EXIT_USER_ERROR:
        raise UserError(reported.removeprefix("error: "))
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise WorkerError(
            f"the process that records the graph was killed by {name}, as systems do when memory "
            "runs out: free some, or use a smaller --imgsz"
        )
    if done.returncode:
        raise WorkerError(f"the process that records the graph failed:\n{reported}")


def main() -> None:
    path, *words = sys.argv[1:]
    config = parse_export_flags(words)
    checkpoint = load_weights(config.weights)
    backend.use("onnx")
    from duet.models.export.recorded import recorded_graph

    Path(path).write_bytes(recorded_graph(config, checkpoint))


if __name__ == "__main__":
    run_command(main)
