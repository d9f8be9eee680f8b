"""What --weights names where nothing is trained: weights of any kind, or an exported file.

Before: `detect.py`, `val.py` or `models.load`. After: `models/inference/predictor.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from utils.errors import UserError
from utils.export.formats import is_exported
from utils.export.opening import open_runtime
from utils.runtimes.runtime import Runtime
from utils.state.checkpoint import Checkpoint
from utils.weights.load import load_weights


@dataclass(frozen=True)
class ExportedWeights:
    """An exported file where weights are asked for.

    Attributes:
        path: the file, or folder, for messages.
    """

    path: str
    runtime: Runtime


Weights = Checkpoint | ExportedWeights


def load_to_detect(path: str | Path, runtime: str = "", threads: int | None = None) -> Weights:
    """Read weights of any kind, or load an exported file.

    Args:
        runtime: what --runtime names; "" for the one that the file's name tells.
        threads: of an exported file; as `open_runtime`.

    Raises:
        UserError: as `load_weights` and `open_runtime`.
    """
    if is_exported(path):
        return ExportedWeights(str(path), open_runtime(path, threads, runtime))
    if runtime:
        raise UserError(
            f"--runtime {runtime} runs exported files, and --weights {path} is none; leave it out"
        )
    return load_weights(path)
