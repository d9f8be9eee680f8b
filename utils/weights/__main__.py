"""`python -m utils.weights`: show what a weights file holds, or convert it into one of ours."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utils.cli.flags import new_parser
from utils.errors import UserError
from utils.files.yaml import read_yaml
from utils.processes.command import run_command
from utils.state.checkpoint import FORMAT, Checkpoint, save_checkpoint
from utils.weights.load import load_weights, model_document
from utils.weights.model_document import complete_document


def main(arguments: Sequence[str] | None = None) -> None:
    parser = new_parser("python -m utils.weights", "Look into weights files and convert them.")
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
    """Return what a checkpoint holds, one line a subject."""
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
    """Return a plain state dict's checkpoint with a YAML's model and numbered class names."""
    if checkpoint.header.model:
        raise UserError(f"--cfg {cfg}: the weights describe their model themselves; leave it out")
    document = read_yaml("--cfg", cfg, "give the YAML of the weights' model")
    document = complete_document(document, checkpoint.ema)
    names = checkpoint.header.class_names or tuple(map(str, range(document["nc"])))
    header = dataclasses.replace(checkpoint.header, model=document, class_names=names)
    return dataclasses.replace(checkpoint, header=header)


if __name__ == "__main__":
    run_command(main)
