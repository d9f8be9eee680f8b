"""work.json: a record of a training run's work, to recognise equal work."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duet.backend.cores import thread_variables
from duet.utils.atomic_files import atomic_text_file
from duet.utils.data.loading.batch import Batch

SCHEMA = 1
# Hash every n-th value of a batch: all 80 MB would take as long as a step on a GPU. A prime covers
# all columns, rows and channels.
PIXEL_STRIDE = 1021


class WorkRecord:
    """Hash of the batches in order, or of this process's shards.

    Each hash covers the previous hash and the next batch, so resuming needs only the last.
    """

    def __init__(self) -> None:
        self._hash = ""
        self._batches = 0

    def add_batch(self, batch: Batch) -> None:
        """Add a trained batch to the hash."""
        self._batches += 1
        digest = hashlib.sha1(self._hash.encode(), usedforsecurity=False)
        digest.update(repr(batch.images.shape).encode())
        for array in (batch.images.reshape(-1)[::PIXEL_STRIDE], batch.sample_indices,
                      batch.global_indices, *batch.targets.arrays()):  # fmt: skip
            digest.update(array.tobytes())
        self._hash = digest.hexdigest()

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values, for `restore`."""
        return {"batches": self._batches, "sha1": self._hash}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state()`."""
        self._batches, self._hash = state["batches"], state["sha1"]

    def write(
        self,
        path: Path,
        framework: str,
        device: str,
        work: Mapping[str, Any],
        means: Mapping[str, Any],
        losses: Sequence[np.ndarray],
    ) -> None:
        """Write work.json.

        Args:
            framework: version and device, for display.
            work: work that must be equal in compared runs, by name.
            means: implementations used, by name; may differ between backends.
            losses: losses of the first batches; null if not finite, which JSON cannot represent.
        """
        batches = {"batches": self._batches, "batches_sha1": self._hash}
        document = {
            "schema": SCHEMA,
            "framework": framework,
            "device": device,
            "variables": thread_variables(),  # number of threads, and how they wait
            "work": {**batches, **work},
            "means": dict(means),
            "losses": [[_rounded(loss) for loss in row] for row in losses],
        }
        with atomic_text_file(path) as file:
            json.dump(document, file, indent=1)


def _rounded(loss: float) -> float | None:
    return float(f"{loss:.9g}") if math.isfinite(loss) else None
