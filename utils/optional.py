"""Optional packages and programs: only some features need them, and they are imported there."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from duet.utils.errors import UserError, brief

LONGEST_SECONDS = 900  # of a program

# The command that installs each; the pins are those of requirements/optional.in. trackers asks for
# another OpenCV, which would overwrite ours.
INSTALL = {
    "ai_edge_litert": "pip install ai-edge-litert==2.1.2",
    "albumentations": "pip install albumentations",
    "av": "pip install av==17.1.0",
    "coremltools": "pip install coremltools==9.0",
    "cuda": "pip install cuda-python==13.4.4",
    "mlflow": "pip install mlflow-skinny==3.17.2 sqlalchemy==2.0.58 alembic==1.20.1",
    "mss": "pip install mss==10.2.0",
    "ncnn": "pip install ncnn==1.0.20261020",
    "onnx": "pip install onnx==1.17.0",
    "onnx2tf": "pipx install --python 3.12 onnx2tf==2.6.9",  # it asks for another onnx than ours
    "onnxruntime": "pip install onnxruntime==1.23.2",
    "openvino": "pip install openvino==2026.4.1",
    "optuna": "pip install optuna==5.0.0 sqlalchemy==2.0.58",
    "pandas": "pip install pandas==2.3.3",
    "pi_heif": "pip install pi-heif==1.4.0",
    "pnnx": "pip install pnnx==20261020",
    "starlette": "pip install starlette==1.7.0 uvicorn==0.54.0 python-multipart==0.0.32 "
    "prometheus-client==0.26.0",
    "supervision": "pip install supervision==0.31.2",
    "tensorboardX": "pip install tensorboardx==2.6.5",
    "tensorrt": "pip install tensorrt==11.4.0.106",
    "trackers": "pip install --no-deps -r requirements/optional.in",
    "wandb": "pip install wandb==0.25.0",
}

# Variables that keep a package from asking the network for a newer version of itself, or from
# telling its makers that it runs.
_QUIET = {
    "albumentations": {
        "NO_ALBUMENTATIONS_UPDATE": "1",
        "ALBUMENTATIONS_NO_TELEMETRY": "1",  # of AlbumentationsX, as the next
        "ALBUMENTATIONS_OFFLINE": "1",
    },
    "mlflow": {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
    "wandb": {"WANDB_ERROR_REPORTING": "false"},
}

# Modules that a package does without. OpenVINO and NNCF send their makers an event when they are
# imported, and no variable stops that. torch would cost a loader's process a second and 180 MB.
_BARRED = {
    "albumentations": ("torch",),
    "nncf": ("openvino_telemetry",),
    "openvino": ("openvino_telemetry",),
}


def find_program(name: str, what_for: str) -> str:
    """Return the path of an optional program; UserError if it is absent, as `import_optional`."""
    found = shutil.which(name)
    if found is None:
        raise UserError(f"{what_for} needs the program {name}: {INSTALL[name]}")
    return found


def run_program(command: Sequence[str | Path], folder: Path) -> None:
    """Run a program in a folder; UserError has the last line it wrote if it fails."""
    name = Path(command[0]).name
    try:
        with subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, errors = process.communicate(timeout=LONGEST_SECONDS)
            except BaseException:  # a timeout, Ctrl-C or SIGTERM: it ends with what it has started
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{name} has not ended after {LONGEST_SECONDS} s") from error
    except OSError as error:
        raise UserError(f"{command[0]} cannot be started: {error.strerror}") from error
    if process.returncode:
        *_, last = (errors.strip() or output.strip() or "no message").splitlines()
        raise UserError(f"{name} failed with status {process.returncode}: {brief(last)}")


def import_optional(module: str, what_for: str) -> ModuleType:
    """Import an optional package, or a module of one.

    Args:
        module: its name: "av", "trackers".
        what_for: what needs it, the first words of the message: "--track", "a video".

    Raises:
        UserError: it is absent, or lacks what it needs; the text has the command that installs it.
    """
    package = module.partition(".")[0]
    os.environ.update(_QUIET.get(package, {}))
    try:
        with _without(_BARRED.get(package, ())):
            return importlib.import_module(module)
    except ImportError as error:
        reason = "" if error.name == package else f" ({error})"
        raise UserError(f"{what_for} needs {package}{reason}: {INSTALL[package]}") from error


@contextmanager
def _without(modules: Sequence[str]) -> Iterator[None]:
    """Make each import of a module that is not imported yet fail in the block."""
    barred: dict[str, Any] = {name: None for name in modules if name not in sys.modules}
    sys.modules.update(barred)
    try:
        yield
    finally:
        for name in barred:
            del sys.modules[name]
