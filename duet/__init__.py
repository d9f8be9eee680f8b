"""Duet in a program of one's own: `from duet import load`; importing it chooses no framework."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any


def load(  # its result is not annotated: that class can be imported only inside
    weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    backend: str | None = None,
    device: str | int = "",
    half: bool = False,
    max_pixels: int | None = None,
    runtime: str = "",
):
    """Return a detector with trained weights: `models/detection/api.py::TrainedDetector`.

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
