"""What --weights names when nothing is trained: weights of any kind, or an exported file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.openmp import runtime_threads
from utils.errors import UserError
from utils.export.formats import is_exported
from utils.export.metadata import Runtime
from utils.export.opening import format_to_run, open_runtime
from utils.weights.checkpoint import Checkpoint
from utils.weights.load import load_weights


@dataclass(frozen=True)
class ExportedWeights:
    """An exported file that --weights names.

    Attributes:
        path: the file, or folder, for messages.
        side_by_side: threads may call it at the same time, as many as `runtime_lanes` says.
    """

    path: str
    runtime: Runtime
    side_by_side: bool = False

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.runtime.metadata.class_names

    @property
    def trained_size(self) -> object:
        """The long side of the images that it was exported for."""
        return max(self.runtime.metadata.image_size)


Weights = Checkpoint | ExportedWeights


def load_all_to_detect(
    paths: Sequence[str | Path], runtime: str = "", several: bool = False
) -> list[Weights]:
    """Read or load all weights that detect together, as `load_to_detect` does each.

    Calls overlap only if all of them allow it; otherwise each uses all cores.
    """
    overlap = several and all(
        is_exported(path) and format_to_run(Path(path), runtime).side_by_side for path in paths
    )
    return [load_to_detect(path, runtime, overlap) for path in paths]


def load_to_detect(path: str | Path, runtime: str = "", several: bool = False) -> Weights:
    """Read weights of any kind, or load an exported file; the backend is chosen.

    Args:
        runtime: what --runtime names; "" for the one that the file's name tells.
        several: batches can be computed side by side.

    Raises:
        UserError: as `load_weights` and `open_runtime`.
    """
    if is_exported(path):
        side_by_side = several and format_to_run(Path(path), runtime).side_by_side
        opened = open_runtime(path, runtime_threads(side_by_side), runtime)
        return ExportedWeights(str(path), opened, side_by_side)
    if runtime:
        raise UserError(
            f"--runtime {runtime} runs exported files, and --weights {path} is none; leave it out"
        )
    return load_weights(path)
