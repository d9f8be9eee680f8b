"""`python -m duet weights`: show what a weights file holds, or convert it into one of ours."""

from __future__ import annotations

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from duet import backend
from duet.utils.cli.flags import new_parser
from duet.utils.errors import UserError
from duet.utils.model_yamls import args_of, block_of
from duet.utils.processes.command import run_command
from duet.utils.tasks.table import Task, task_of_head
from duet.utils.text import count, printable, say
from duet.utils.weights.checkpoint import FORMAT, Checkpoint, Header, save_checkpoint
from duet.utils.weights.load import load_weights, model_document
from duet.utils.weights.public_heads import PUBLIC_HEADS


def main(arguments: Sequence[str] | None = None) -> None:
    parser = new_parser("python -m duet weights", "Look into weights files and convert them.")
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
        say(*describe(checkpoint).splitlines())
    else:
        _convert(checkpoint, flags.out, flags.cfg)


def describe(checkpoint: Checkpoint) -> str:
    """Return what a checkpoint holds, one line per subject."""
    header, arrays = checkpoint.header, checkpoint.ema
    dtypes = sorted({array.dtype.name for array in arrays.values()})
    size = sum(array.size for array in arrays.values())
    fused = "BatchNorm folded in; for val.py, not for training"
    lines = [
        f"format: {header.settings.get('converted_from', FORMAT)}",
        f"stored as: {_joined(header.settings.get('stored_dtypes', dtypes), ', ')}",
        *([f"fused: {fused}"] if header.settings.get("fused") else []),
        f"tensors: {len(arrays)} with {size:,} numbers",
        f"optimizer tensors: {len(checkpoint.optimizer)}",
        f"finished epochs: {header.epoch}",
        f"stored epoch: {header.settings.get('stored_epoch', header.epoch)}",
        f"strides: {header.settings.get('strides', 'as the model gives')}",
        f"image size: {header.settings.get('image_size') or 'unknown'}",
        *_about_task(header),
        f"layers: {_joined(_blocks(header.model), ' ') or 'unknown: a plain state dict'}",
        f"classes: {len(header.class_names)} {list(header.class_names)}",
        f"hyper-parameters: {json.dumps(header.hyperparameters)}",
    ]
    return "\n".join(map(printable, lines))


def _about_task(header: Header) -> list[str]:
    """Return which task the weights are for, and what belongs to it."""
    blocks = _blocks(header.model)
    task = task_of_head(blocks[-1]) if blocks else None
    if task is None:
        return ["task: unknown"]
    best = header.settings.get("stored_fitness")
    best = header.best_fitness if best is None and header.best_fitness >= 0 else best
    return [
        f"task: {task.name}",
        *_about_model(task, header.model),
        *([] if best is None else [f"best fitness: {best} ({_fitness_of(task)})"]),
    ]


def _about_model(task: Task, document: Mapping[str, Any]) -> list[str]:
    """Return what the args of the task's head mean in a document that nothing has checked yet."""
    if task.takes_levels and "anchors" not in task.head_args:
        return ["anchors: none"]
    if "anchors" not in task.head_args:
        number = len(_blocks(document))
        return [f"cutoff: {number}, the layers of a detector with the head as the last one"]
    lines = [f"anchors in pixels: {document.get('anchors', 'unknown')}"]
    args = dict(enumerate(args_of(document)))
    if len(task.head_args) > 2:
        lines.append(
            f"masks: {args.get(2, 'unknown')} prototypes, of {args.get(3, 'unknown')} channels "
            "times the width multiple"
        )
    return lines


def _fitness_of(task: Task) -> str:
    weights = task.fitness.items()
    return " + ".join(name if weight == 1 else f"{weight:g} {name}" for name, weight in weights)


def _blocks(document: Mapping[str, Any]) -> list[Any]:
    """Return the block of each layer of a model description, which nothing has checked yet."""
    parts = [part for key in ("backbone", "head") if isinstance(part := document.get(key), list)]
    return [line[2] for part in parts for line in part if isinstance(line, list) and line[2:]]


def _joined(values: Any, between: str) -> str:
    return between.join(map(str, values)) if isinstance(values, list) else str(values)


def _convert(checkpoint: Checkpoint, out: Path, cfg: str) -> None:
    if out.suffix != ".safetensors":
        raise UserError(f"{out}: the name of the new file must end with .safetensors")
    if cfg and checkpoint.header.model:
        raise UserError(f"--cfg {cfg}: the weights describe their model themselves; leave it out")
    if not cfg:
        model_document(checkpoint)
    backend.use()
    from duet.models.graph import read_model_yaml
    from duet.models.stored import detector_of_weights

    if cfg:
        spec = read_model_yaml(cfg)
        checkpoint = describe_state_dict(checkpoint, spec.document, len(spec.layers))
    detector_of_weights(checkpoint)  # what cannot be built is not written
    out.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(out, checkpoint)
    say(f"wrote {out}: {count(len(checkpoint.ema), 'tensor')}")


def describe_state_dict(
    checkpoint: Checkpoint, document: Mapping[str, Any], layers: int
) -> Checkpoint:
    """Return a plain state dict's checkpoint with a model YAML and numbered class names.

    The number of classes is that of the arrays' head; `layers` counts the YAML's layers.
    """
    head, prefix = PUBLIC_HEADS.get(block_of(document)), f"model.{layers - 1}"
    classes = None if head is None else head.classes(checkpoint.ema, f"{prefix}.")
    if classes is None:
        raise UserError(
            f"--cfg: the weights have no head of this YAML at {prefix}; give the YAML of their "
            "model"
        )
    document = {**document, "nc": classes}
    names = checkpoint.header.class_names or tuple(map(str, range(classes)))
    header = dataclasses.replace(checkpoint.header, model=document, class_names=names)
    return dataclasses.replace(checkpoint, header=header)


if __name__ == "__main__":
    run_command(main)
