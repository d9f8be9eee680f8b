"""Checks of flags that need no framework: made before it is imported or ranks are started."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from backend import select
from backend.checks import CPU
from backend.devices import require_cpu
from utils.cli.audit_config import AuditConfig
from utils.cli.detect_config import DetectConfig
from utils.cli.export_config import ExportConfig
from utils.cli.run_config import CommandConfig
from utils.cli.train_config import TrainConfig
from utils.cli.val_config import ValConfig
from utils.errors import UserError
from utils.export.formats import TRACE, exported_path, format_named, is_exported, require_free_place
from utils.files.models import find_model, read_model
from utils.files.project import PROJECT
from utils.optional import find_program, import_optional
from utils.processes.cores import NVIDIA_DRIVER, sees_driver
from utils.report.loggers.events import check_loggers
from utils.screen.window import require_window
from utils.state.folder import unwritable_text

PUBLIC_STRIDE = 32  # which those of all public models are multiples of
DEVICE = re.compile(r"cpu|(cuda:)?\d+")


def check_training(config: TrainConfig) -> None:
    """Raise UserError for a flag of a new training that cannot be honoured."""
    if not config.weights:
        check_public_size(config.image_size, config.cfg)
    check_model_yaml(config.cfg)
    check_loggers(config.loggers)
    _check_command(config, config.weights)


def check_validation(config: ValConfig) -> None:
    """Raise UserError for a flag of a validation that cannot be honoured."""
    check_file("--annotations", str(config.annotations or ""))
    _check_command(config, *config.weights)


def check_audit(config: AuditConfig) -> None:
    """Raise UserError for a flag of an audit that cannot be honoured."""
    _check_command(config, *config.weights)


def check_detection(config: DetectConfig) -> None:
    """Raise UserError for a flag of detect.py that cannot be honoured."""
    if config.view_images:
        require_window("--view-img")
    if config.track:
        import_optional("trackers", "--track")
    _check_command(config, *config.weights)


def check_export(config: ExportConfig) -> None:
    """Raise UserError for a flag of export.py that cannot be honoured."""
    check_file("--weights", config.weights)
    if is_exported(config.weights):
        raise UserError(
            f"--weights {config.weights} is an exported file, which keeps too little of its model; "
            "give the weights that it was made from"
        )
    for row in map(format_named, config.include):
        path = exported_path(config.weights, row)
        _check_place(path.parent)
        require_free_place(path, row)
    check_device(config.device)
    _check_traced(config, select.choose(config.backend))
    _require_packages(config)


def _check_traced(config: ExportConfig, backend: str) -> None:
    """Raise UserError for a format that is made of a trace, which the backend cannot write."""
    traced = [name for name in config.include if format_named(name).source == TRACE]
    if traced and not select.FRAMEWORKS[backend].torchscript:
        raise UserError(
            f"--include {traced[0]} is made of a TorchScript trace, which backend {backend!r} "
            "cannot write; give --backend torch, or leave it out"
        )


def _check_place(folder: Path) -> None:
    """Raise UserError if no file can be written beside the weights; leave nothing behind."""
    try:
        with tempfile.TemporaryDirectory(prefix=".duet-", dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"the files go beside --weights, into {folder.absolute()}: {error.strerror}; copy the "
            "weights into a folder that can be written to"
        ) from error


def _require_packages(config: ExportConfig) -> None:
    """Raise UserError that names all packages and programs which the formats lack."""
    missing: dict[str, str] = {}
    for name in ("onnx", *config.include):  # all are made of an ONNX graph, or held against one
        row = format_named(name)
        for find, names in ((import_optional, row.packages), (find_program, row.programs)):
            for wanted in names:
                try:
                    find(wanted, f"--include {name}")
                except UserError as error:
                    missing.setdefault(wanted, str(error))
    if missing:
        raise UserError("\n".join(missing.values()))


def _check_command(config: CommandConfig, *weights: str) -> None:
    for path in weights:
        check_file("--weights", path)
    require_cpu(select.choose(config.backend), config.device)
    check_device(config.device)
    check_new_folder(config.project, config.name)


def check_public_size(size: int, cfg: str) -> None:
    """Raise UserError for an --img that no public model takes, where --cfg names or means one.

    Whoever builds the model asks again, by its own stride.
    """
    if not cfg or Path(os.path.realpath(find_model(cfg))).is_relative_to(PROJECT / "models"):
        check_image_size(size, PUBLIC_STRIDE)


def check_image_size(size: int, stride: int, flag: str = "--img") -> None:
    """Raise UserError unless a flag's size is a multiple of a model's stride."""
    if size % stride:
        fitting = -(-size // stride) * stride
        raise UserError(
            f"{flag} {size} is no multiple of the model's stride {stride}; use {fitting}"
        )


def check_model_yaml(argument: str) -> None:
    """Raise UserError unless --cfg is left out or names a YAML; its layers are checked later."""
    if argument:
        read_model(argument)


def check_file(flag: str, path: str) -> None:
    """Raise UserError if a flag names a file that does not exist; '' is a flag left out."""
    if path and not Path(path).exists():
        place = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
        raise UserError(f"{flag} {path}: no such file{place}")


def check_device(name: str) -> None:
    """Raise UserError for a name that is not a device, or for a GPU if there is no driver."""
    devices = name.split(",")
    if name and not all(map(DEVICE.fullmatch, devices)):
        raise UserError(f"--device {name!r}: cpu, a GPU's number such as 0, or 0,1 is needed")
    if set(devices) - {"", CPU} and not sees_driver():
        raise UserError(
            f"--device {name!r} is not there: this machine shows no GPU driver "
            f"({NVIDIA_DRIVER}); use --device cpu, or install NVIDIA's driver"
        )


def check_new_folder(project: Path, name: str) -> None:
    """Raise UserError where a folder cannot be made inside a project; leave nothing behind.

    Args:
        project: a folder, or one that is still to be made.
        name: of the folder inside it.
    """
    nearest = next(path for path in (project, *project.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".duet-", dir=nearest) as trial:
            Path(trial, name).mkdir()
    except OSError as error:
        raise UserError(unwritable_text(project, name, nearest, error)) from error
