"""Optional packages, programs and wings.

A wing is a folder that a core module lists in a tuple WINGS; deleting it removes its feature only.
"""

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from duet.backend.system import without_telemetry
from duet.utils.errors import UserError, brief
from duet.utils.project import PROJECT, STAMP
from duet.utils.system.children import KILL, child_options, signal_group

TIMEOUT_SECONDS = 900  # for a program

# The extra in pyproject.toml that installs each package.
EXTRAS = {
    "av": "media",
    "onnx": "export",
    "onnxruntime": "export",
    "openvino": "openvino",
    "optuna": "evolve",
    "pandas": "tables",
    "pi_heif": "media",
    "starlette": "serve",
    "supervision": "track",
    "tensorboardX": "loggers",
    "trackers": "track",
}
# The command for each of the others: single formats of export.py, large loggers.
INSTALL = {
    "ai_edge_litert": "pip install ai-edge-litert==2.1.2",
    "coremltools": "pip install coremltools==9.0",
    "cuda": "pip install cuda-python==13.4.4",
    "ncnn": "pip install ncnn==1.0.20261020",
    "onnx2tf": "pipx install --python 3.12 onnx2tf==2.6.9",  # requires another version of onnx
    "pnnx": "pip install pnnx==20261020",
    "tensorrt": "pip install tensorrt==11.4.0.106",
    "wandb": "pip install wandb==0.25.0",
}

# OpenVINO and NNCF import it if they can, and send their makers an event; no variable stops that.
_TELEMETRY = "openvino_telemetry"


def install_command(package: str) -> str:
    """Return the command that installs an optional package or program."""
    if package not in EXTRAS:
        return INSTALL[package]
    environment = Path(sys.prefix)
    if (environment / STAMP).exists():  # pip does not know the overrides in the lock files
        name = environment.name.partition("-")[0]
        return f"make --directory {PROJECT} setup BACKEND={name} WITH=extras"
    what = f"-e '{PROJECT}" if (PROJECT / "pyproject.toml").exists() else "'duet-detect"
    return f"pip install {what}[{EXTRAS[package]}]'"


def find_program(name: str, what_for: str) -> str:
    """Return the path of an optional program; UserError with the install command."""
    found = shutil.which(name)
    if found is None:
        raise UserError(f"{what_for} needs the program {name}; install it: {install_command(name)}")
    return found


def run_program(command: Sequence[str | Path], folder: Path) -> None:
    """Run a program in a folder; UserError with the last line of its output on failure."""
    name = Path(command[0]).name
    try:
        with without_telemetry(), subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, encoding="locale", errors="replace", **child_options(),
        ) as process:  # fmt: skip
            try:
                output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
            except BaseException:  # on a timeout, Ctrl-C or SIGTERM, kill its children too
                signal_group(process, KILL)
                raise
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{name} did not finish within {TIMEOUT_SECONDS} s") from error
    except OSError as error:
        raise UserError(f"could not start {command[0]}: {error.strerror}") from error
    if process.returncode:
        *_, last = (errors.strip() or output.strip() or "no message").splitlines()
        raise UserError(f"{name} failed with exit code {process.returncode}: {brief(last)}")


def import_optional(module: str, what_for: str) -> ModuleType:
    """Import an optional package or one of its modules; UserError with the install command.

    what_for: the beginning of the message: "--track", "a video".
    """
    package = module.partition(".")[0]
    is_barred = package in ("nncf", "openvino") and _TELEMETRY not in sys.modules
    try:
        if is_barred:
            sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # its import fails
        with without_telemetry():
            return importlib.import_module(module)
    except ImportError as error:
        reason = "" if error.name == package else f" ({error})"
        command = install_command(package)
        raise UserError(f"{what_for} needs {package}{reason}; install it: {command}") from error
    finally:
        if is_barred:
            del sys.modules[_TELEMETRY]


def load_wings(names: Sequence[str]) -> list[ModuleType]:
    """Import the modules whose folders exist."""
    return [importlib.import_module(name) for name in names if _exists(name)]


def require_wing(names: Sequence[str], what_for: str) -> ModuleType:
    """Import the first of the modules that exists; UserError if none does."""
    for wing in load_wings(names):
        return wing
    module = names[0].removeprefix("duet.") if names else "a wing."
    place = module.rpartition(".")[0].replace(".", "/")
    raise UserError(f"{what_for} needs {place}, which is missing; get a complete copy of Duet")


def _exists(name: str) -> bool:
    parent = name.rpartition(".")[0]
    return (not parent or _exists(parent)) and importlib.util.find_spec(name) is not None
