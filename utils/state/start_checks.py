"""Checks of flags that need no framework: made before it is imported or ranks are started."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from backend import select
from backend.checks import CPU
from backend.devices import require_cpu
from utils.cli.export_config import ExportConfig
from utils.cli.run_config import CommandConfig
from utils.errors import UserError
from utils.export.formats import TRACE, exported_path, format_named, is_exported, require_free_place
from utils.optional import find_program, import_optional
from utils.processes.cores import NVIDIA_DRIVER, sees_driver

DEVICE = re.compile(r"cpu|(cuda:)?\d+")


def check_command(config: CommandConfig) -> None:
    """Raise UserError for a device that the backend or this machine cannot offer."""
    require_cpu(select.choose(config.backend), config.device)
    check_device(config.device)


def check_export(config: ExportConfig) -> None:
    """Raise UserError for a flag of export.py that cannot be honoured."""
    if not Path(config.weights).exists():
        raise UserError(f"--weights {config.weights}: no such file")
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


def check_image_size(size: int, stride: int, flag: str = "--img") -> None:
    """Raise UserError unless a flag's size is a multiple of a model's stride."""
    if size % stride:
        fitting = -(-size // stride) * stride
        raise UserError(
            f"{flag} {size} is no multiple of the model's stride {stride}; use {fitting}"
        )


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
