"""Checkpoints: the full state of a run as arrays and one JSON header, in a safetensors file.

Written to a temporary name, synced and renamed, so that a file of the final name is complete; a
checksum tells whether it still is. Nothing in it is code. Both backends write and read the same
arrays. `load_weights` also opens files of other programs; `python -m utils.state.checkpoint show
FILE` prints what a file holds and `convert FILE OUT` writes it as one of ours.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from utils.cli.command import new_parser, run_command
from utils.errors import UserError
from utils.files.json import complete
from utils.weights.model_document import complete_document
from utils.weights.reader import open_foreign
from utils.weights.yolov5 import ForeignWeights, read_yolov5

FORMAT = "duet-checkpoint"
VERSION = 1
HEADER_KEY = "duet"  # of the safetensors metadata, which maps strings to strings
CHECKSUM_KEY = "sha256"  # likewise; absent from files written before there was one
SECTIONS = ("model", "ema", "optimizer", "gradients", "evaluation")

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
    # Absent from files written before they were kept:
    loss_scale: float = 1.0  # of float16 training
    progress: Mapping[str, Any] = field(default_factory=dict)  # as `utils/state/progress.py` says


KINDS = {
    **dict.fromkeys(("model", "hyperparameters", "settings", "progress"), dict),
    **dict.fromkeys(("epoch", "batch_number", "last_update", "ema_updates"), int),
    **dict.fromkeys(("best_fitness", "loss_scale"), float),
    "class_names": [str],
    "backend": str,
}  # of a Header as JSON


@dataclass(frozen=True)
class Checkpoint:
    """A run's state: arrays in five sections, three of them by parameter name.

    Attributes:
        gradients: of batches since the last update, `RANK/PARAMETER`; empty after an update.
        evaluation: of a validation in progress, the fields of `EvaluationProgress`.
    """

    header: Header
    model: Arrays
    ema: Arrays
    optimizer: Arrays
    gradients: Arrays = field(default_factory=dict)
    evaluation: Arrays = field(default_factory=dict)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write atomically: the file is the old one or the new one, never part of one."""
    header = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(checkpoint.header)}
    arrays = {
        f"{section}/{name}": np.ascontiguousarray(array).reshape(np.shape(array))
        for section in SECTIONS
        for name, array in getattr(checkpoint, section).items()
    }
    text = json.dumps(header)
    data = save(arrays, metadata={HEADER_KEY: text, CHECKSUM_KEY: _checksum(text, arrays)})
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


def _checksum(header: str, arrays: Arrays) -> str:
    """SHA-256 of the header and of every array with its name, type and shape."""
    digest = hashlib.sha256(header.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).data)
    return digest.hexdigest()


def load_weights(path: str | Path) -> Checkpoint:
    """Read a weights file of any kind that docs/weights.md lists, told apart by its bytes.

    Returns:
        A checkpoint. Of a foreign file it has the same arrays as model and as ema, no optimizer,
        and in the header an empty model and no class names where the file has none.

    Raises:
        UserError: no such file, damaged, of an unknown kind, or asking for what is refused.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"--weights {path}: no such file")
    try:
        if path.suffix == ".safetensors" or _starts_as_safetensors(path):
            return _read_own(path)
        with open_foreign(path) as contents:
            return _from_foreign(read_yolov5(contents))
    except OSError as error:
        raise UserError(f"--weights {path}: {error.strerror}") from error
    except UserError as error:
        text = str(error)
        raise UserError(text if "--weights" in text else f"--weights {path}: {text}") from error


def model_document(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """The model YAML of weights; UserError where they have none, as a plain state dict."""
    if not checkpoint.header.model:
        raise UserError(
            "--weights: a plain state dict, which describes no model; write a checkpoint with "
            "python -m utils.state.checkpoint convert FILE OUT.safetensors --cfg YAML"
        )
    return checkpoint.header.model


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint of either backend, written by `save_checkpoint`.

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
    return _read_own(path)


def _read_own(path: Path) -> Checkpoint:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"--weights {path}: damaged or no safetensors file ({error})") from error
    header = _parse_header(path, metadata.get(HEADER_KEY))
    stored = metadata.get(CHECKSUM_KEY)
    must_have = stored is not None or header.progress
    if must_have and stored != _checksum(metadata[HEADER_KEY], arrays):
        raise UserError(f"--weights {path}: damaged: its content does not fit its checksum")
    sections = {
        section: {
            name.removeprefix(f"{section}/"): array
            for name, array in arrays.items()
            if name.startswith(f"{section}/")
        }
        for section in SECTIONS
    }
    return Checkpoint(header, **sections)


def _starts_as_safetensors(path: Path) -> bool:
    """Eight bytes of length, then JSON; no zip and no pickle has a brace there."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(9)[8:] == b"{"


def _from_foreign(weights: ForeignWeights) -> Checkpoint:
    header = Header(
        model=weights.document,
        class_names=weights.class_names,
        epoch=0 if weights.epoch is None else max(weights.epoch + 1, 0),
        batch_number=0,
        last_update=-1,
        ema_updates=0,
        best_fitness=-1.0,
        hyperparameters=weights.hyperparameters,
        settings={
            "converted_from": weights.file_format,
            "stored_dtypes": list(weights.stored_dtypes),
            "stored_epoch": weights.epoch,
            "strides": list(weights.strides),
        },
        backend="",
    )
    return Checkpoint(header, model=weights.arrays, ema=weights.arrays, optimizer={})


def _parse_header(path: Path, text: str | None) -> Header:
    try:
        document = json.loads(text or "")
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise KeyError("format")
        header = Header(**{name: document[name] for name in KINDS if name in document})
        _require_kinds(header)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"--weights {path}: no {FORMAT} version {VERSION} header; "
            "it was not written by train.py of this version"
        ) from error
    return dataclasses.replace(header, class_names=tuple(header.class_names))


def _require_kinds(header: Header) -> None:
    """ValueError unless the fields of a header are of the kind that `KINDS` says."""
    found = {**vars(header), "last_update": max(header.last_update, 0)}  # -1 before the first
    complete(found, KINDS)
    if header.last_update < -1 or not math.isfinite(header.best_fitness * header.loss_scale):
        raise ValueError("header")


def _sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = new_parser(
        "python -m utils.state.checkpoint", "Look into weights files and convert them."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="print what a weights file holds")
    show.add_argument("file", type=Path)
    convert = commands.add_parser("convert", help="write a .safetensors that train.py can open")
    convert.add_argument("file", type=Path)
    convert.add_argument("out", type=Path)
    convert.add_argument("--cfg", default="", help="model YAML, for a plain state dict")
    flags = parser.parse_args(arguments)
    checkpoint = load_weights(flags.file)
    if flags.command == "show":
        print(describe(checkpoint))
    else:
        _convert(checkpoint, flags.out, flags.cfg)


def describe(checkpoint: Checkpoint) -> str:
    """What a checkpoint holds, a line a subject."""
    header, arrays = checkpoint.header, checkpoint.ema
    dtypes = sorted({array.dtype.name for array in arrays.values()})
    count = sum(array.size for array in arrays.values())
    lines = [
        f"format: {header.settings.get('converted_from', FORMAT)}",
        f"stored as: {', '.join(header.settings.get('stored_dtypes', dtypes))}",
        f"tensors: {len(arrays)} with {count:,} numbers",
        f"optimizer tensors: {len(checkpoint.optimizer)}",
        f"finished epochs: {header.epoch}",
        f"stored epoch: {header.settings.get('stored_epoch', header.epoch)}",
        f"strides: {header.settings.get('strides', 'as the model gives')}",
        f"anchors in pixels: {header.model.get('anchors', 'unknown')}",
        f"layers: {' '.join(_blocks(header.model)) or 'unknown: a plain state dict'}",
        f"classes: {len(header.class_names)} {list(header.class_names)}",
        f"hyper-parameters: {json.dumps(header.hyperparameters)}",
    ]
    return "\n".join(lines)


def _blocks(document: Mapping[str, Any]) -> list[str]:
    return [str(line[2]) for key in ("backbone", "head") for line in document.get(key, ())]


def _convert(checkpoint: Checkpoint, out: Path, cfg: str) -> None:
    if out.suffix != ".safetensors":
        raise UserError(f"{out}: the name of the new file must end with .safetensors")
    if cfg:
        checkpoint = describe_state_dict(checkpoint, cfg)
    model_document(checkpoint)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(out, checkpoint)
    print(f"wrote {out}: {len(checkpoint.ema)} tensors")


def describe_state_dict(checkpoint: Checkpoint, cfg: str) -> Checkpoint:
    """A plain state dict's checkpoint with the model of a YAML and numbered class names."""
    if checkpoint.header.model:
        raise UserError(f"--cfg {cfg}: the weights describe their model themselves; leave it out")
    try:
        document = yaml.safe_load(Path(cfg).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"--cfg {cfg}: {error}") from error
    document = complete_document(document, checkpoint.ema)
    names = checkpoint.header.class_names or tuple(map(str, range(document["nc"])))
    header = dataclasses.replace(checkpoint.header, model=document, class_names=names)
    return dataclasses.replace(checkpoint, header=header)


if __name__ == "__main__":
    run_command(main)
