"""Names of the emulated GPUs: cuda:0 and cuda:1 to the program, another kind of device to PyTorch.

EMULATED_KIND=mps: a GPU of Apple, without float64, page-locked memory, streams and CUDA.

PyTorch does backward passes on the first device of that kind alone: it is the one that belongs to
this process, cuda:LOCAL_RANK.
"""

from __future__ import annotations

import os
from typing import Any

import torch

NUM_GPUS = 2
KIND, SHOWN_AS = "privateuseone", os.environ.get("EMULATED_KIND", "cuda")
OWN = int(os.environ.get("LOCAL_RANK", "0")) % NUM_GPUS
_current = 0


def inside(gpu: int) -> torch.device:
    """Return what PyTorch calls a GPU in this process."""
    return torch.device(KIND, (gpu - OWN) % NUM_GPUS)


def is_inside(device: Any) -> bool:
    """Return whether a device is a GPU, by the name that PyTorch has."""
    return torch.device(device).type == inside(0).type


def gpu_of(device: Any) -> int:
    """Return which GPU a device is, by either name; without a number the current one."""
    if isinstance(device, int):
        return device
    device = torch.device(device or SHOWN_AS)
    if device.index is None:
        return _current
    return device.index if device.type == SHOWN_AS else (device.index + OWN) % NUM_GPUS


def current_device() -> int:
    return _current


def set_device(device: Any) -> None:
    """Do as `torch.cuda.set_device`."""
    global _current
    _current = gpu_of(device)


class InDevice:
    """Does as `torch.cuda.device`."""

    def __init__(self, device: Any) -> None:
        self._gpu = gpu_of(device)

    def __enter__(self) -> None:
        self._before = _current
        set_device(self._gpu)

    def __exit__(self, *error: object) -> None:
        set_device(self._before)
