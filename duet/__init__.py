"""Duet in a program of one's own, as `duet.train(...)`; importing it chooses no framework."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from duet.utils.errors import UserError

if TYPE_CHECKING:  # what these need may be absent while Python reads this file
    from duet.models.detection.api import TrainedDetector
    from duet.models.evaluation.validation import Validated
    from duet.models.export.job import Exports
    from duet.models.training.outputs import Trained
    from duet.utils.data.check.checking import Check

__all__ = ["UserError", "check", "export", "load", "train", "val"]


def load(
    weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    backend: str | None = None,
    device: str | int = "",
    half: bool = False,
    max_pixels: int | None = None,
    runtime: str = "",
) -> TrainedDetector:
    """Return a detector with trained weights.

    Args:
        weights: a file that docs/en/weights.md lists, or one of export.py; of several files the
            models detect together.
        backend: "torch", "oneflow" or "onnx"; None for the one in use, else YOLO_BACKEND, else what
            is installed. A process has one.
        device: "cpu"; "0", or 0, for the first GPU; "" for a GPU if there is one.
        half: compute in half precision on a GPU; a line of the log says if there is none.
        max_pixels: image files of more pixels are refused; None for the limit of --max-pixels.
        runtime: what runs an exported file, as --runtime; "" for the one of its name.

    Raises:
        ValueError: a file or an argument that cannot be used; it names the next step.
    """
    files = [weights] if isinstance(weights, (str, os.PathLike)) else list(weights)
    if not files:
        raise ValueError("weights: []; at least one file of docs/en/weights.md is needed")
    device = str(device)
    opened = begin(files, backend, device, runtime)
    from duet.models.detection.api import TrainedDetector

    return TrainedDetector(opened, device, half, max_pixels)


def begin(
    files: Sequence[str | os.PathLike[str]], backend: str | None, device: str, runtime: str = ""
) -> list[Any]:
    """Choose the framework and read weights; return them. Errors as in `load`."""
    # What these need may be absent while Python reads this file: utils/processes/start.py.
    from duet.backend import use
    from duet.backend.devices import check_device
    from duet.utils.weights.detecting import load_to_detect

    check_device(device)
    use(backend)
    return [load_to_detect(os.fspath(file), runtime) for file in files]


def train(data: str | os.PathLike[str] | None = None, **flags: Any) -> Trained:
    """Train a model as `duet train` does; return where its files are and its metrics.

    `train(data="shapes", cfg="yolov5n.yaml", weights="", epochs=30, img=160, backend="torch")`

    Args:
        data: a dataset YAML, a folder, an annotation file or the name of a built-in dataset.
        flags: any of docs/en/train-flags.md, with underscores: True for a switch, a list for
            several values.

    Raises:
        UserError: a wrong value, with the message of the command.
        Suspended: of utils/processes/suspend.py, where `time_limit` or a signal asked it to stop;
            the state is saved, and its text says how to go on.
    """
    from duet.commands.train import main
    from duet.runs import call

    return call("train", main, {"data": data, **flags})


def val(
    weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    data: str | os.PathLike[str] | None = None,
    **flags: Any,
) -> Validated:
    """Validate weights as `duet val` does; return the metrics.

    Args:
        weights: a file that docs/en/weights.md lists; several detect together.
        data: as for `train`.
        flags: any of docs/en/val-flags.md, as for `train`.

    Raises:
        UserError: a wrong value, with the message of the command.
    """
    from duet.commands.val import main
    from duet.runs import call

    return call("val", main, {"weights": weights, "data": data, **flags})


def export(
    weights: str | os.PathLike[str], include: Sequence[str] | str = "onnx", **flags: Any
) -> Exports:
    """Write verified files for other runtimes as `duet export` does; return their paths.

    Args:
        weights: a file that docs/en/weights.md lists.
        include: formats, as "onnx" or ["onnx", "openvino"].
        flags: any of docs/en/export-flags.md, as for `train`.

    Raises:
        UserError: a wrong value, with the message of the command.
    """
    from duet.commands.export import run
    from duet.runs import call

    return call("export", run, {"weights": weights, "include": include, **flags})


def check(data: str | os.PathLike[str], **flags: Any) -> Check:
    """Look for mistakes in a dataset as `duet check` does; return what is found.

    Args:
        data: as for `train`.
        flags: those that `duet check --help` lists, as for `train`.

    Raises:
        UserError: a wrong value, with the message of the command.
    """
    from duet.runs import call
    from duet.utils.data.check.__main__ import run

    return call("check", run, {"data": data, **flags})
