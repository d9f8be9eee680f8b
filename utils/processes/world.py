"""The processes of one job, as each of them sees the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from duet.backend.processes import Process

# (N, ...) of this rank -> that of each rank in their order; N may differ. All ranks call it.
AllGather = Callable[[np.ndarray], list[np.ndarray]]


def gather_alone(array: np.ndarray) -> list[np.ndarray]:
    """Return the array of the only rank of a job."""
    return [array]


class World(NamedTuple):
    """This process and its connection to the others; by default it is alone."""

    process: Process = Process()
    all_gather: AllGather = gather_alone

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank; all ranks call this at the same moments."""
        return bool(np.concatenate(self.all_gather(np.array([flag], np.uint8))).any())

    def of_main(self, text: str) -> str:
        """Return rank 0's text, after rank 0 has come to this call."""
        return self._gather_texts(text)[0].decode("utf-8", "surrogateescape")

    def all_have(self, text: str) -> bool:
        """Return whether all ranks have the same text."""
        return len(set(self._gather_texts(text))) == 1

    def _gather_texts(self, text: str) -> list[bytes]:
        """Return the text of each rank; it may be the name of a file that is not UTF-8."""
        encoded = np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)
        return [found.tobytes() for found in self.all_gather(encoded)]


ALONE = World()
