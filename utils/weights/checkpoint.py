"""Checkpoints: the full state of a run as arrays and one JSON header, in a safetensors file.

A file is written to a temporary name, synced and renamed: under its final name it is complete. A
checksum shows later damage. Nothing in it is code. Both backends write and read the same arrays.
Files of other programs are read by `utils/weights/load.py`.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from duet.utils.errors import UserError, brief, naming_weights
from duet.utils.files.atomic import atomic_file
from duet.utils.files.json_files import Document, complete, parse_json
from duet.utils.files.regular import pinned
from duet.utils.image_limits import MAX_IMAGE_SIZE
from duet.utils.system.files import sync_folder

FORMAT = "duet-checkpoint"
VERSION = 1
HEADER_KEY = "duet"  # in the safetensors metadata, which maps strings to strings
CHECKSUM_KEY = "sha256"  # likewise
MAX_WEIGHTS_BYTES = 1 << 35  # for any kind of weights file
DTYPES = ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U8", "BOOL")
MAX_NAME = 300  # characters of an array's
SECTIONS = ("model", "ema", "optimizer")

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Header:
    """The part of a checkpoint that is not arrays."""

    model: Document  # the model YAML
    class_names: tuple[str, ...]
    # Defaults describe weights that no run has trained.
    epoch: int = 0  # finished epochs
    batch_number: int = 0  # batches since the start of training
    last_update: int = -1  # number of the batch of the last optimizer step; -1: none yet
    ema_updates: int = 0
    best_fitness: float = -1.0
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    settings: Document = field(default_factory=dict)  # the flags of the run
    backend: str = ""  # that wrote it, for information
    loss_scale: float = 1.0  # of float16 training
    progress: Document = field(default_factory=dict)  # see `utils/state/progress.py`


KINDS = {
    **dict.fromkeys(("model", "hyperparameters", "settings", "progress"), dict),
    **dict.fromkeys(("epoch", "batch_number", "last_update", "ema_updates"), int),
    **dict.fromkeys(("best_fitness", "loss_scale"), float),
    "class_names": [str],
    "backend": str,
}  # JSON structure of a Header


@dataclass(frozen=True)
class Checkpoint:
    """A run's state: arrays in three sections, by parameter name.

    path: the file that it was read from, for messages; "" if it was made here.
    """

    header: Header
    model: Arrays
    ema: Arrays
    optimizer: Arrays
    path: str = ""

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.header.class_names

    @property
    def trained_size(self) -> int | None:
        """Long side of the training images, pixels; None if unknown."""
        size = self.header.settings.get("image_size")
        return size if type(size) is int and 0 < size <= MAX_IMAGE_SIZE else None


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    header = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(checkpoint.header)}
    arrays = {
        f"{section}/{name}": np.ascontiguousarray(array).reshape(np.shape(array))
        for section in SECTIONS
        for name, array in getattr(checkpoint, section).items()
    }
    text = json.dumps(header)
    data = save(arrays, metadata={HEADER_KEY: text, CHECKSUM_KEY: _checksum(text, arrays)})
    with atomic_file(path) as file:
        file.write(data)
    sync_folder(path.parent)


def _checksum(header: str, arrays: Arrays) -> str:
    """Return the SHA-256 of the header and of every array with its name, type and shape."""
    digest = hashlib.sha256(header.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).data)
    return digest.hexdigest()


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint written by `save_checkpoint` on either backend; UserError for others."""
    path = Path(path)
    with _opened(path) as file:
        metadata = file.metadata() or {}
        header = _parse_header(metadata.get(HEADER_KEY))
        arrays = {name: _read_array(file, name) for name in file.keys()}  # noqa: SIM118
        if metadata.get(CHECKSUM_KEY) != _checksum(metadata[HEADER_KEY], arrays):
            raise UserError("damaged: its content does not fit its checksum")
    sections = {
        section: {
            name.removeprefix(f"{section}/"): array
            for name, array in arrays.items()
            if name.startswith(f"{section}/")
        }
        for section in SECTIONS
    }
    return Checkpoint(header, **sections, path=str(path))


def read_header(path: Path) -> Header:
    """Read only the header of a checkpoint; UserError if the file is not one.

    Damage to its values, or to the arrays, is detected by `load_checkpoint`.
    """
    with _opened(path) as file:
        return _parse_header((file.metadata() or {}).get(HEADER_KEY))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with naming_weights(path), pinned(path, MAX_WEIGHTS_BYTES) as name:
        try:
            with safe_open(name, framework="numpy") as file:
                yield file
        except SafetensorError as error:
            raise UserError(f"damaged or not a safetensors file ({brief(str(error))})") from error


def _read_array(file: Any, name: str) -> np.ndarray:
    dtype = file.get_slice(name).get_dtype()
    if dtype not in DTYPES or len(name) > MAX_NAME:
        raise UserError(
            f"it holds {brief(name)} as {dtype}; a file of train.py holds {', '.join(DTYPES)} and "
            f"names of up to {MAX_NAME} characters; convert the file that this one was made from"
        )
    try:
        return file.get_tensor(name)
    except ValueError as error:  # a shape that NumPy does not have
        raise UserError(f"damaged: {brief(name)}: {error}") from error


def _parse_header(text: str | None) -> Header:
    try:
        document = parse_json(text or "")
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise KeyError("format")
        header = Header(**{name: document[name] for name in KINDS})
        complete({**vars(header), "last_update": max(header.last_update, 0)}, KINDS)
        if header.last_update < -1 or not math.isfinite(header.best_fitness * header.loss_scale):
            raise ValueError("header")
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"no {FORMAT} version {VERSION} header ({error!s:.100}); it was not written by "
            "train.py of this version"
        ) from error
    return dataclasses.replace(header, class_names=tuple(header.class_names))
