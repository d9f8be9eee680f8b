"""What --weights names when nothing is trained: weights of any kind, or an exported file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duet.utils.errors import UserError
from duet.utils.optional import require_wing
from duet.utils.weights.checkpoint import Checkpoint
from duet.utils.weights.load import is_exported, load_weights

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
    def trained_size(self) -> object:
        """The long side of the images that it was exported for."""
        return max(self.runtime.metadata.image_size)


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
