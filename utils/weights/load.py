"""A weights file of any kind -> a checkpoint: ours, or one that other programs wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duet.utils.errors import UserError
from duet.utils.files.regular import open_regular
from duet.utils.optional import require_wing
from duet.utils.weights.archives import open_foreign
from duet.utils.weights.checkpoint import (
    MAX_WEIGHTS_BYTES,
    Checkpoint,
    load_checkpoint,
    read_header,
)
from duet.utils.weights.missing import answer_missing
from duet.utils.weights.yolov5 import read_yolov5

EXPORTED = (  # endings of the files that utils/export writes and runs
    ".onnx", "_openvino_model", ".torchscript", "_ncnn_model", ".tflite", ".mlpackage",
    "_tensorrt_model",
)  # fmt: skip


def is_exported(path: str | Path) -> bool:
    """Return whether a file's name is that of an exported one, in letters of either case."""
    return Path(path).name.lower().endswith(EXPORTED)


def load_weights(path: str | Path) -> Checkpoint:
    """Read a weights file of any kind listed in docs/en/weights.md, recognised by its content.

    Returns:
        A checkpoint. From a foreign file it has the same arrays as model and as ema, and no
        optimizer; where the file has no model or class names, the header has none.

    Raises:
        UserError: no such file, damaged, of an unknown kind, or refused.
    """
    path = Path(path)
    if is_exported(path):
        raise UserError(
            f"--weights {path}: an exported file, which only detect.py, val.py and duet.load "
            "run; give the weights that it was exported from"
        )
    if not path.exists():
        raise UserError(f"--weights {path}: no such file; {answer_missing(path)}")
    try:
        if path.suffix == ".safetensors" or not path.is_dir() and _starts_as_safetensors(path):
            return load_checkpoint(path)
        with open_foreign(path) as contents:
            return read_yolov5(contents, str(path))
    except OSError as error:
        raise UserError(f"--weights {path}: {error.strerror}") from error
    except MemoryError as error:
        raise UserError(f"--weights {path}: it does not fit into memory") from error
    except UserError as error:
        text = str(error)
        raise UserError(text if "--weights" in text else f"--weights {path}: {text}") from error


def stored_model(path: str | Path) -> Mapping[str, Any]:
    """Return the model document of a weights file; empty if it has none.

    Of our own files only the header is read, so damaged arrays are not detected.
    """
    path = Path(path)
    ours = path.suffix == ".safetensors" and path.is_file()
    return (read_header(path) if ours else load_weights(path).header).model


def _starts_as_safetensors(path: Path) -> bool:
    """Return whether JSON follows 8 bytes of length; no zip and no pickle has a brace there."""
    with open_regular(path, MAX_WEIGHTS_BYTES) as file:
        return file.read(9)[8:] == b"{"


def model_document(checkpoint: Checkpoint) -> Mapping[str, Any]:
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
    """An exported file that --weights names.

    Attributes:
        path: the file, or folder, for messages.
        runtime: that runs it: `utils/export/metadata.py::Runtime`.
        lanes: how many batches threads may give it at the same time.
    """

    path: str
    runtime: Any
    lanes: int = 1

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.runtime.metadata.class_names

    @property
    def trained_size(self) -> int | None:
        """The long side of the images of the model's training, pixels; None where unknown."""
        return self.runtime.metadata.trained_size


Weights = Checkpoint | ExportedWeights


def load_all_to_detect(
    paths: Sequence[str | Path], runtime: str = "", several: bool = False
) -> list[Weights]:
    """Read or load all weights that detect together, as `load_to_detect` does each.

    Batches overlap only in a single file; members of an ensemble use all cores in turn.
    """
    return [load_to_detect(path, runtime, several and len(paths) == 1) for path in paths]


def load_to_detect(path: str | Path, runtime: str = "", several: bool = False) -> Weights:
    """Read weights of any kind, or load an exported file; the backend is chosen.

    Args:
        runtime: --runtime; "" to choose by the file name.
        several: batches can be computed side by side.

    Raises:
        UserError: as `load_weights`; an exported file that cannot be run.
    """
    if is_exported(path):
        wing = require_wing(WINGS, f"--weights {path}")
        return ExportedWeights(str(path), *wing.open_to_detect(Path(path), runtime, several))
    if runtime:
        raise UserError(
            f"--runtime {runtime} runs exported files, and --weights {path} is none; leave it out"
        )
    return load_weights(path)
