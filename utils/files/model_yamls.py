"""Find the project's model YAMLs by name, and apply their multiples."""

import difflib
import json
import math
from pathlib import Path
from typing import Any

from duet.utils.errors import UserError
from duet.utils.files.json_files import Document, parse_json
from duet.utils.files.yaml_files import find_yaml, read_yaml
from duet.utils.project import PROJECT

PUBLIC_MODELS = (
    "public models: yolov5{n,s,m,l,x}, the same with 6, u or 6u, yolov8{n,s,m,l,x}, yolov3, and "
    "the others in models/hub"
)
FOLDERS = ("models", "models/hub")
CHANNEL_MULTIPLE = 8
MAX_LENGTH = 200_000  # characters of JSON; lists that repeat lists grow exponentially


def find_model(argument: str) -> Path:
    """Return the --cfg file: the path as given, else by name from models/ or models/hub/."""
    return find_yaml(argument, *FOLDERS)


def shipped_model(name: str) -> Path:
    """Return the file of a public model, ignoring files of that name in the working folder."""
    paths = [PROJECT / folder / f"{name}.yaml" for folder in FOLDERS]
    return next(path for path in paths if path.is_file())


def read_model(argument: str) -> tuple[Path, Document]:
    path = find_model(argument)
    if not path.exists():
        names = [file.stem for folder in FOLDERS for file in (PROJECT / folder).glob("*.yaml")]
        near = difflib.get_close_matches(path.name.removesuffix(".yaml"), names, n=3)
        raise UserError(
            f"--cfg {argument}: no such file or public model; accepted: a model YAML, or one of "
            f"the {PUBLIC_MODELS}" + (f"; did you mean {' or '.join(near)}?" if near else "")
        )
    return path, read_yaml("--cfg", path, PUBLIC_MODELS)


def scale_depth(number: int, multiple: float) -> int:
    """Scale a block's repeats by the depth multiple; at least one."""
    return max(round(number * multiple), 1)


def scale_width(channels: int, multiple: float) -> int:
    """Scale channels by the width multiple, rounded up to a multiple of 8."""
    return math.ceil(channels * multiple / CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE


def block_of(document: Document) -> Any:
    """Return the block of the last layer; None if the document is not a model YAML."""
    try:
        _, _, block, *_ = document["head"][-1]
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return block


def to_plain(value: object) -> Any:
    """Copy a model description as JSON values; UserError if it is too long or holds others."""
    text = ""
    try:
        for part in json.JSONEncoder(allow_nan=False).iterencode(value):
            text += part
            if len(text) > MAX_LENGTH:
                raise ValueError(f"over {MAX_LENGTH:,} characters")
        return parse_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"the model description is too long or too deep, or holds more than text and finite "
            f"numbers: {error}"
        ) from error
