"""The process that writes the ONNX graph, from start to end.

Before: `job.py` has flags that fit the weights. After: `graph_file.py` does the work, on the
backend that records; this process keeps its own.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from utils.cli.export_config import ExportConfig
from utils.cli.flags import as_words
from utils.errors import UserError, WorkerError
from utils.files.project import PROJECT
from utils.processes.process_family import ask_for_signal_when_parent_ends
from utils.processes.start import EXIT_USER_ERROR

MODULE = "models.export.graph_file"
KILLED = (
    "the process that writes the graph was ended by {}; a system does that when memory runs out: "
    "free some, or use a smaller --imgsz"
)


def write_graph(config: ExportConfig, path: Path) -> None:
    """Write the ONNX graph of the weights that a configuration names, both by absolute paths.

    The process ends with this one, also at Ctrl-C.

    Raises:
        UserError: as that process says.
        WorkerError: it failed or was ended; the text has its traceback.
    """
    done = subprocess.run(
        [sys.executable, "-m", MODULE, str(path), *as_words(config, leave_out=("backend",))],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        preexec_fn=ask_for_signal_when_parent_ends,
    )
    told = done.stderr.strip()
    if done.returncode == EXIT_USER_ERROR:
        raise UserError(told.removeprefix("error: "))
    if done.returncode < 0:
        raise WorkerError(KILLED.format(signal.Signals(-done.returncode).name))
    if done.returncode:
        raise WorkerError(f"the process that writes the graph failed:\n{told}")
