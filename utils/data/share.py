"""Which samples of a batch, or images of a folder, are one rank's.

Before: `batches` draws the whole batch. After: each rank builds its share of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Share(NamedTuple):
    """One of `world_size` contiguous shares, whose lengths differ by one at most."""

    rank: int = 0
    world_size: int = 1

    def of(self, items: Sequence | np.ndarray) -> Sequence | np.ndarray:
        """The share of a sequence, which may be empty; the shares of all ranks make it whole."""
        return items[self._start(len(items), self.rank) : self._start(len(items), self.rank + 1)]

    def _start(self, count: int, rank: int) -> int:
        return -(-count * rank // self.world_size)  # rounded up: rank 0 is the last to be idle
