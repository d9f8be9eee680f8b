"""Checkpoints: the full state of a run as arrays and one JSON header, in a safetensors file.

Written to a temporary name, synced and renamed, so that a file of the final name is complete.
Nothing in it is code. Both backends write and read the same arrays.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from utils.errors import UserError

FORMAT = "duet-checkpoint"
VERSION = 1
HEADER_KEY = "duet"  # of the safetensors metadata, which maps strings to strings
SECTIONS = ("model", "ema", "optimizer")

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Header:
    """What is not an array."""

    model: Mapping[str, Any]  # the model YAML
    class_names: tuple[str, ...]
    epoch: int  # finished epochs
    batch_number: int  # batches since the start of training
    last_update: int  # number of the batch of the last optimizer step
    ema_updates: int
    best_fitness: float
    hyperparameters: Mapping[str, float]
    settings: Mapping[str, Any]  # the flags of the run
    backend: str  # that wrote it, for the record


@dataclass(frozen=True)
class Checkpoint:
    """A run's state: arrays by parameter name in three sections."""

    header: Header
    model: Arrays
    ema: Arrays
    optimizer: Arrays


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write atomically: the file is the old one or the new one, never part of one."""
    header = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(checkpoint.header)}
    arrays = {
        f"{section}/{name}": np.ascontiguousarray(array).reshape(np.shape(array))
        for section in SECTIONS
        for name, array in getattr(checkpoint, section).items()
    }
    data = save(arrays, metadata={HEADER_KEY: json.dumps(header)})
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint of either backend.

    Raises:
        UserError: no such file, damaged, or not one of ours.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise UserError(
            f"--weights {path}: only .safetensors files of a training run can be opened, "
            "runs/train/exp/weights/best.safetensors for instance"
        )
    if not path.is_file():
        raise UserError(f"--weights {path}: no such file")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"--weights {path}: damaged or no safetensors file ({error})") from error
    header = _parse_header(path, metadata.get(HEADER_KEY))
    sections = {
        section: {
            name.removeprefix(f"{section}/"): array
            for name, array in arrays.items()
            if name.startswith(f"{section}/")
        }
        for section in SECTIONS
    }
    return Checkpoint(header, **sections)


def _parse_header(path: Path, text: str | None) -> Header:
    try:
        document = json.loads(text or "")
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise KeyError("format")
        fields = {field.name: document[field.name] for field in dataclasses.fields(Header)}
        fields["class_names"] = tuple(fields["class_names"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"--weights {path}: no {FORMAT} version {VERSION} header; "
            "it was not written by train.py of this version"
        ) from error
    return Header(**fields)


def _sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
