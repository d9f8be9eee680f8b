"""Checks of flags that need no framework: made before it is imported or ranks are started."""

from __future__ import annotations

import re

from backend import select
from backend.checks import CPU
from backend.devices import require_cpu
from utils.cli.run_config import CommandConfig
from utils.errors import UserError
from utils.processes.cores import NVIDIA_DRIVER, sees_driver

DEVICE = re.compile(r"cpu|(cuda:)?\d+")


def check_command(config: CommandConfig) -> None:
    """Raise UserError for a device that the backend or this machine cannot offer."""
    require_cpu(select.choose(config.backend), config.device)
    check_device(config.device)


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
