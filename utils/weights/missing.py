"""Answer a --weights that names no file: what lies beside it, who has it, what is supported."""

from __future__ import annotations

import re
from pathlib import Path

from duet.utils.project import WEIGHTS_FILES, how_to_fetch

# Names of public files. Those of the first kind open, but no list of `duet fetch` has them.
OPENED = re.compile(r"yolov8[nsmlx]|yolov5[nsmlx]6?u")
FAMILIES = re.compile(r"(yolo(?!v[35]($|[-nsmlx]))|rt-?detr|rf-?detr)\S*")


def file_beside(path: Path) -> Path | None:
    """Return the file of the same name that ends in .safetensors or .pt; None if there is none."""
    for suffix in (".safetensors", ".pt"):
        for name in (path.stem + suffix, path.name + suffix):
            if (found := path.with_name(name)).is_file() and found != path:
                return found
    return None


def answer_missing(path: Path) -> str:
    """Return the next step for weights that do not exist."""
    if found := file_beside(path):
        return f"did you mean {found}?"
    if path.suffix in (".yaml", ".yml"):
        return f"a model YAML is given as --cfg {path}"
    stem = path.name.removesuffix(".pt").lower()
    if fetched := how_to_fetch(path.with_name(f"{stem}.pt")):
        return fetched
    if OPENED.fullmatch(stem):
        return f"`duet fetch` does not have it; download {stem}.pt from its publisher"
    if FAMILIES.fullmatch(stem):
        return f"{stem} is of a family or task that is not supported; accepted: {WEIGHTS_FILES}"
    return f"nothing is downloaded; accepted: {WEIGHTS_FILES}"
