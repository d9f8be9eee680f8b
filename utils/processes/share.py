"""Which samples of a batch, or images of a folder, are one rank's.

Before: `batches` draws the whole batch. After: each rank builds its share of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

_Items = TypeVar("_Items", np.ndarray, range, Sequence[Any])


class Share(NamedTuple):
    """One of `world_size` contiguous shares, whose lengths differ by one at most."""

    rank: int = 0
    world_size: int = 1

    def of(self, items: _Items) -> _Items:
        """The share of a sequence, which may be empty; the shares of all ranks make it whole."""
        return items[self._start(len(items), self.rank) : self._start(len(items), self.rank + 1)]

    def _start(self, count: int, rank: int) -> int:
        return -(-count * rank // self.world_size)  # rounded up: rank 0 is the last to be idle


WHOLE = Share()

# (N, ...) of this rank -> that of each rank in their order; N may differ. All ranks call it.
AllGather = Callable[[np.ndarray], list[np.ndarray]]


def gather_alone(array: np.ndarray) -> list[np.ndarray]:
    """What the only rank of a job gathers."""
    return [array]
