"""`duet weights`: show what a weights file holds, or convert it into one of ours."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from duet import backend
from duet.utils.cli.flags import new_parser
from duet.utils.errors import UserError
from duet.utils.files.json_files import Document
from duet.utils.processes.command import run_command
from duet.utils.tasks import task_of_head
from duet.utils.text import count, printable, say
from duet.utils.weights.checkpoint import FORMAT, Checkpoint, save_checkpoint
from duet.utils.weights.load import load_weights, model_document


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default sys.argv; a file or folder alone is shown."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    alone = Path(words[0]) if len(words) == 1 and words[0] not in ("show", "convert") else None
    if alone and (alone.suffix or alone.is_dir()):
        words.insert(0, "show")
    parser = new_parser("duet weights", "Look into weights files and convert them.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="show | convert")
    show = commands.add_parser(
        "show", help="print what a weights file holds; the word may be left out"
    )
    show.add_argument("file", type=Path)
    convert = commands.add_parser("convert", help="write a .safetensors that train.py can open")
    convert.add_argument("file", type=Path)
    convert.add_argument("out", type=Path)
    convert.add_argument("--cfg", default="", help="model YAML of a plain state dict, with its nc")
    flags = parser.parse_args(words)
    checkpoint = load_weights(flags.file)
    if flags.command == "show":
        say(*describe(checkpoint).splitlines())
    else:
        _convert(checkpoint, flags.out, flags.cfg)


def describe(checkpoint: Checkpoint) -> str:
    header, arrays, settings = checkpoint.header, checkpoint.ema, checkpoint.header.settings
    dtypes = sorted({array.dtype.name for array in arrays.values()})
    blocks = _blocks(header.model)
    task = task_of_head(blocks[-1]) if blocks else None
    best, is_fused = settings.get("stored_fitness"), settings.get("fused")
    best = header.best_fitness if best is None and header.best_fitness >= 0 else best
    facts = {
        "format": settings.get("converted_from", FORMAT),
        "stored as": _joined(settings.get("stored_dtypes", dtypes), ", "),
        "fused": "BatchNorm folded in; for val.py, not for training" if is_fused else None,
        "tensors": f"{len(arrays)} with {sum(x.size for x in arrays.values()):,} numbers",
        "optimizer tensors": len(checkpoint.optimizer),
        "finished epochs": header.epoch,
        "stored epoch": settings.get("stored_epoch", header.epoch),
        "strides": settings.get("strides", "as the model gives"),
        "image size": settings.get("image_size") or "unknown",
        "task": task.name if task else "unknown",
        "anchors in pixels": header.model.get("anchors"),
        "best fitness": best,
        "layers": _joined(blocks, " ") or "unknown: a plain state dict",
        "classes": f"{len(header.class_names)} {list(header.class_names)}",
        "hyper-parameters": json.dumps(header.hyperparameters),
    }
    lines = (f"{name}: {value}" for name, value in facts.items() if value is not None)
    return "\n".join(map(printable, lines))


def _blocks(document: Document) -> list[object]:
    """Return the block of each layer of a model description, which nothing has checked yet."""
    parts = [part for key in ("backbone", "head") if isinstance(part := document.get(key), list)]
    return [line[2] for part in parts for line in part if isinstance(line, list) and line[2:]]


def _joined(values: object, between: str) -> str:
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
        document = read_model_yaml(cfg).document
        names = checkpoint.class_names or tuple(map(str, range(document["nc"])))
        header = dataclasses.replace(checkpoint.header, model=document, class_names=names)
        checkpoint = dataclasses.replace(checkpoint, header=header)
    detector_of_weights(checkpoint)  # refuses a model that cannot be built
    out.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(out, checkpoint)
    say(f"wrote {out}: {count(len(checkpoint.ema), 'tensor')}")


if __name__ == "__main__":
    run_command(main)
