"""The model YAMLs of the project, found by name; what their multiples mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duet.utils.errors import UserError
from duet.utils.project import PROJECT
from duet.utils.yaml_files import find_yaml, near_yamls, read_yaml

PUBLIC_MODELS = (
    "public models: yolov5{n,s,m,l,x}, the same with 6, u or 6u, yolov8{n,s,m,l,x}, yolov3, and "
    "the others in models/hub"
)
FOLDERS = ("models", "models/hub")
CHANNEL_MULTIPLE = 8


def find_model(argument: str) -> Path:
    """Return the file of --cfg: as given, else that of the name in models/ or models/hub/."""
    return find_yaml(argument, *FOLDERS)


def shipped_model(name: str) -> Path:
    """Return the file of a model of the project, whatever else has its name here."""
    paths = [PROJECT / folder / f"{name}.yaml" for folder in FOLDERS]
    return next(path for path in paths if path.is_file())


def read_model(argument: str) -> tuple[Path, Mapping[Any, Any]]:
    """Return the file of --cfg and what it holds; UserError as `read_yaml`."""
    path = find_model(argument)
    if not path.exists():
        raise UserError(
            f"--cfg {argument}: there is no such file and no public model of this name; "
            f"{near_yamls(argument, *FOLDERS)}give a model YAML, or the name of one of the "
            f"{PUBLIC_MODELS}"
        )
    return path, read_yaml("--cfg", path, PUBLIC_MODELS)


def scale_depth(number: int, multiple: float) -> int:
    """Return repeats of a block after the depth multiple; at least one."""
    return max(round(number * multiple), 1)


def scale_width(channels: int, multiple: float) -> int:
    """Return channels after the width multiple, rounded up to a multiple of 8."""
    return math.ceil(channels * multiple / CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE


def block_of(document: Mapping[str, Any]) -> Any:
    """Return the block of a document's last layer; None if it is no such document."""
    return _last_line(document)[2]


def args_of(document: Mapping[str, Any]) -> list[Any]:
    """Return the args of a document's last layer; [] where it is no such document."""
    args = _last_line(document)[3]
    return args if isinstance(args, list) else []


def _last_line(document: Mapping[str, Any]) -> list[Any]:
    """Return [from, number, module, args] of the last layer, None for what is not there."""
    try:
        line = document["head"][-1]
    except (KeyError, IndexError, TypeError):
        line = ()
    return [*line, None, None, None, None][:4] if isinstance(line, (list, tuple)) else [None] * 4
