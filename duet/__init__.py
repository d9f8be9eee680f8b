"""Python API, for example `duet.train(...)`; importing it selects no framework."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # their dependencies may be missing at import time
    from duet.models.detect.api import TrainedDetector
    from duet.models.evaluation.validation import Validated
    from duet.models.export.job import Exports
    from duet.models.training.outputs import Trained
    from duet.utils.data.check.checking import Check

__version__ = "1.0.0.dev0"  # as in pyproject.toml
FOLDER = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(FOLDER, "utils")):  # a checkout without symbolic links
    __path__.append(os.path.dirname(FOLDER))

from duet.utils.errors import UserError, brief  # noqa: E402

__all__ = ["UserError", "__version__", "check", "export", "load", "train", "val"]


def load(
    weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    backend: str | None = None,
    device: str | int = "",
    half: bool = False,
    max_pixels: int | None = None,
    runtime: str = "",
) -> TrainedDetector:
    """Load trained weights; return a detector.

    Args:
        weights: a file listed in docs/en/weights.md, or one from export.py; several files form an
            ensemble.
        backend: "torch", "oneflow" or "onnx"; None for the active one, else YOLO_BACKEND, else the
            installed one. A process uses only one.
        device: "cpu"; "0" or 0 for the first GPU; "" for a GPU if available.
        half: compute in half precision on a GPU; falls back to float32 with a log line.
        max_pixels: reject image files with more pixels; None for the default of --max-pixels.
        runtime: runtime of an exported file, as for --runtime; "" to choose by its name.

    Raises:
        ValueError: unusable file or argument; the message suggests the next step.
    """
    if not weights or not isinstance(weights, (str, os.PathLike, Sequence)):
        raise ValueError(f"weights: {brief(weights)}; accepted: a file, or a list of files")
    files = [weights] if isinstance(weights, (str, os.PathLike)) else list(weights)
    device = str(device)
    opened = begin(files, backend, device, runtime)
    from duet.models.detect.api import TrainedDetector

    return TrainedDetector(opened, device, half, max_pixels)


def begin(
    files: Sequence[str | os.PathLike[str]], backend: str | None, device: str, runtime: str = ""
) -> list[Any]:
    """Select the framework and return the loaded weights. Errors as in `load`."""
    # Dependencies may be missing at import time: see utils/processes/start.py.
    from duet.backend import use
    from duet.backend.devices import check_device
    from duet.utils.weights.load import load_to_detect

    check_device(device)
    use(backend)
    return [load_to_detect(os.fspath(file), runtime) for file in files]


def train(data: str | os.PathLike[str] | None = None, **flags: object) -> Trained:
    """Train a model, like `duet train`; return the paths of its files and its metrics.

    `train(data="shapes", cfg="yolov5n.yaml", weights="", epochs=30, img=160, backend="torch")`

    Args:
        data: dataset YAML, folder, annotation file, or name of a built-in dataset.
        flags: flags from docs/en/train-flags.md, with underscores; True for a switch, a list for
            several values.

    Raises:
        UserError: invalid value; same message as the command's.
        Suspended (utils/processes/suspend.py): stopped by `time_limit` or a signal; the state has
            been saved, and the message explains how to continue.
    """
    from duet.commands.train import main
    from duet.runs import call

    return call("train", main, {"data": data, **flags})


def val(
    weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    data: str | os.PathLike[str] | None = None,
    **flags: object,
) -> Validated:
    """Validate weights, like `duet val`; return the metrics.

    Args:
        weights: a file listed in docs/en/weights.md; several form an ensemble.
        data: as for `train`.
        flags: flags from docs/en/val-flags.md, as for `train`.

    Raises:
        UserError: invalid value; same message as the command's.
    """
    from duet.commands.val import main
    from duet.runs import call

    return call("val", main, {"weights": weights, "data": data, **flags})


def export(
    weights: str | os.PathLike[str], include: Sequence[str] | str = "onnx", **flags: Any
) -> Exports:
    """Export verified files for other runtimes, like `duet export`; return their paths.

    Args:
        weights: a file listed in docs/en/weights.md.
        include: formats, such as "onnx" or ["onnx", "openvino"].
        flags: flags from docs/en/export-flags.md, as for `train`.

    Raises:
        UserError: invalid value; same message as the command's.
    """
    from duet.commands.export import run
    from duet.runs import call

    return call("export", run, {"weights": weights, "include": include, **flags})


def check(data: str | os.PathLike[str], **flags: object) -> Check:
    """Check a dataset for mistakes, like `duet check`; return the findings.

    Args:
        data: as for `train`.
        flags: flags from `duet check --help`, as for `train`.

    Raises:
        UserError: invalid value; same message as the command's.
    """
    from duet.runs import call
    from duet.utils.data.check.__main__ import run

    return call("check", run, {"data": data, **flags})
