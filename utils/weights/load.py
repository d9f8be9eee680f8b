"""Read weights files of any kind: our checkpoints, other programs' files, exported files."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duet.utils.errors import UserError, naming_weights
from duet.utils.files.json_files import Document
from duet.utils.files.regular import open_regular
from duet.utils.optional import require_wing
from duet.utils.project import WEIGHTS_FILES, how_to_fetch
from duet.utils.weights.archives import open_foreign
from duet.utils.weights.checkpoint import (
    MAX_WEIGHTS_BYTES,
    Checkpoint,
    load_checkpoint,
    read_header,
)
from duet.utils.weights.yolov5 import read_yolov5

EXPORTED = (  # suffixes of files that utils/export writes and runs
    ".onnx", "_openvino_model", ".torchscript", "_ncnn_model", ".tflite", ".mlpackage",
    "_tensorrt_model",
)  # fmt: skip
OF_A_TRAINING = [f"{at}{name}.safetensors" for name in ("best", "last") for at in ("weights/", "")]
# Public files: those that can be opened, though `duet fetch` lacks them, and other families.
OPENED = re.compile(r"yolov8[nsmlx]|yolov5[nsmlx]6?u")
FAMILIES = re.compile(r"(yolo(?!v[35]($|[-nsmlx]))|rt-?detr|rf-?detr)\S*")


def is_exported(path: str | Path) -> bool:
    """Return whether a file has the name of an exported one, ignoring case."""
    return Path(path).name.lower().endswith(EXPORTED)


def load_weights(path: str | Path) -> Checkpoint:
    """Read a weights file of any kind listed in docs/en/weights.md, recognised by its content.

    A foreign file's checkpoint has equal model and ema and no optimizer; its header lacks model or
    class names if the file does.
    """
    path = Path(path)
    with naming_weights(path):
        if is_exported(path):
            raise UserError(
                "an exported file, which only detect.py, val.py, duet serve and duet.load run; "
                "give the weights that it was exported from"
            )
        require_present(path)
        if trained := list(filter(os.path.isfile, map(path.joinpath, OF_A_TRAINING))):
            raise UserError(f"the folder of a training; give {trained[0]}")
        if path.suffix == ".safetensors" or not path.is_dir() and _starts_as_safetensors(path):
            return load_checkpoint(path)
        with open_foreign(path) as contents:
            return read_yolov5(contents, str(path))


def require_present(path: Path) -> None:
    """Raise UserError, with the next step, if there is no weights file of this name."""
    with naming_weights(path):
        if not path.exists():
            next_step = "" if is_exported(path) else f"; {answer_missing(path)}"
            raise UserError(f"no such file{next_step}")


def stored_model(path: str | Path) -> Document:
    """Return the model document of a weights file; empty if it has none.

    Of our own files only the header is read, so damaged arrays are not detected.
    """
    path = Path(path)
    ours = path.suffix == ".safetensors" and path.is_file()
    return (read_header(path) if ours else load_weights(path).header).model


def _starts_as_safetensors(path: Path) -> bool:
    """Return whether JSON follows 8 bytes of length; no zip or pickle has a brace there."""
    with open_regular(path, MAX_WEIGHTS_BYTES) as file:
        return file.read(9)[8:] == b"{"


def model_document(checkpoint: Checkpoint) -> Document:
    """Return the model YAML of weights; raise UserError for a plain state dict without one."""
    if not checkpoint.header.model:
        raise UserError(
            "--weights: a plain state dict, which describes no model; write a checkpoint with "
            "duet weights convert FILE OUT.safetensors --cfg YAML"
        )
    return checkpoint.header.model


# --weights where nothing is trained: weights of any kind, or an exported file.

WINGS = ("duet.utils.export.opening",)  # modules whose `open_to_detect` opens exported files


@dataclass(frozen=True)
class ExportedWeights:
    """An exported file named by --weights."""

    path: str  # file or folder, for messages
    runtime: Any  # a `utils/export/metadata.py::Runtime`
    lanes: int = 1  # number of batches that threads may run concurrently

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.runtime.metadata.class_names

    @property
    def trained_size(self) -> int | None:
        return self.runtime.metadata.trained_size


Weights = Checkpoint | ExportedWeights


def load_all_to_detect(
    paths: Sequence[str | Path], runtime: str = "", several: bool = False
) -> list[Weights]:
    """Load the weights of one model, or of an ensemble, whose members take turns."""
    return [load_to_detect(path, runtime, several and len(paths) == 1) for path in paths]


def load_to_detect(path: str | Path, runtime: str = "", several: bool = False) -> Weights:
    """Read weights, or load an exported file; a backend must have been chosen.

    Args:
        runtime: --runtime; "" to choose by the file name.
        several: whether batches may be computed concurrently.
    """
    if is_exported(path):
        wing = require_wing(WINGS, f"--weights {path}")
        return ExportedWeights(str(path), *wing.open_to_detect(Path(path), runtime, several))
    if runtime:
        raise UserError(
            f"--runtime {runtime} runs exported files, and --weights {path} is not one; omit it"
        )
    return load_weights(path)


def file_beside(path: Path) -> Path | None:
    """Return an existing file of this name that ends in .safetensors or .pt, or None."""
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
