"""The interface of a runtime, for those who run an exported file.

Before: `opening.py` chooses one by the file. After: `models/inference/exported.py` makes a
predictor of it, `models/export/` verifies the file with it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from utils.runtimes.metadata import Metadata

Outputs = tuple[np.ndarray, ...]  # of a file, each (B, ...) float32


class Runtime(Protocol):
    """An exported file, loaded. Threads may share one.

    Attributes:
        name: of the runtime, with its version and device, for the log.
    """

    metadata: Metadata
    name: str

    def __call__(self, images: np.ndarray) -> Outputs:
        """Run the file.

        Args:
            images: what `metadata.image` says: (B, 3, H, W) float32 in [0, 1], of the file's size
                and batch unless it is dynamic; or one image (H, W, 3) uint8.

        Returns:
            What `metadata.output` says, float32, in that order.
        """
