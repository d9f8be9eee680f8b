"""The model YAMLs of the project, found by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utils.files.project import PROJECT
from utils.files.yaml import find_yaml, read_yaml

PUBLIC_MODELS = (
    "public models: yolov5{n,s,m,l,x}, yolov5{n,s,m,l,x}6, yolov3, and the others in models/hub"
)


FOLDERS = ("models", "models/hub")


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
    return path, read_yaml("--cfg", path, PUBLIC_MODELS)
