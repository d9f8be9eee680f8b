"""The process that writes graphs: how it fails, how it ends, and what it leaves."""

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from duet.models.export import graph_process
from duet.models.export.graph_process import MODULE, write_graph
from duet.utils.errors import UserError, WorkerError
from duet.utils.export.config import ExportConfig
from duet.utils.project import PROJECT
from duet.utils.weights.checkpoint import Checkpoint, save_checkpoint
from tests.environments import BACKENDS, SECONDS, has_ended, python_of, wait_until
from tests.small import tiny_checkpoint

# A module in place of the process that writes graphs; the name of its weights says how it ends.
STAND_IN = "ends_badly"
ENDS_BADLY = """
import os
import signal
import sys
import time
from pathlib import Path
out, weights = sys.argv[1], sys.argv[2].partition("=")[2]
deed = Path(weights).name
if deed == "fails":
    raise KeyError("a defect of ours")
if deed == "is-killed":
    os.kill(os.getpid(), signal.SIGKILL)
if deed == "stays":
    Path(out).write_text(str(os.getpid()))
    time.sleep(300)
"""
STARTER = f"""
import signal, sys
from pathlib import Path
from duet.models.export import graph_process
from duet.utils.export.config import ExportConfig
from duet.utils.processes.command import run_command
from duet.utils.processes.start import ending_at_termination
graph_process.MODULE = {STAND_IN!r}
def main():
    with ending_at_termination():
        graph_process.write_graph(ExportConfig(weights="stays"), Path(sys.argv[1]))
run_command(main)
"""


def config_for(weights: Path | str, **settings: object) -> ExportConfig:
    return ExportConfig(weights=str(weights), sizes=(64,), **settings)


def test_exported_bytes_do_not_depend_on_the_backend(
    tmp_path: Path,
) -> None:
    checkpoint = tiny_checkpoint(tmp_path)
    written = set()
    for backend in BACKENDS:
        header = dataclasses.replace(checkpoint.header, backend=backend, epoch=len(backend))
        weights, graph = tmp_path / f"{backend}.safetensors", tmp_path / f"{backend}.onnx"
        save_checkpoint(weights, Checkpoint(header, checkpoint.model, checkpoint.ema, {}))
        command = [python_of(backend), "-m", MODULE, graph, "--weights", weights, "--img=64"]
        subprocess.run(command, cwd=PROJECT, check=True, timeout=300)
        written.add(graph.read_bytes())
    assert len(written) == 1


def test_weight_beyond_half_precision_is_named(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path)
    arrays = dict(checkpoint.ema)
    arrays["model.1.bn.weight"] = np.full_like(arrays["model.1.bn.weight"], 1e6)
    weights = tmp_path / "large.safetensors"
    save_checkpoint(weights, Checkpoint(checkpoint.header, arrays, arrays, {}))
    with pytest.raises(UserError, match=r"^--half: model\.1\.conv\.weight .* ends at 65,504;"):
        write_graph(config_for(weights, half=True), tmp_path / "graph.onnx")
    assert not list(tmp_path.glob("*.onnx*"))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{STAND_IN}.py").write_text(ENDS_BADLY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(graph_process, "MODULE", STAND_IN)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("fails", "Traceback(.|\n)*KeyError: 'a defect of ours'"),
        ("is-killed", "was killed by SIGKILL, as systems do when memory"),
    ],
)
def test_defect_shows_its_traceback_and_kill_its_signal(
    tmp_path: Path, end: str, text: str
) -> None:
    with pytest.raises(WorkerError, match=text):
        write_graph(config_for(end), tmp_path / "graph.onnx")


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_graph_process_ends_with_its_starter(tmp_path: Path, number: signal.Signals) -> None:
    reported = tmp_path / "process"
    starter = subprocess.Popen([sys.executable, "-c", STARTER, reported], cwd=PROJECT)
    wait_until(lambda: reported.exists() and reported.read_text() != "")
    starter.send_signal(number)
    assert starter.wait(SECONDS) != 0
    wait_until(lambda: has_ended(reported.read_text()))
