"""The processes of a job, and communication between them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from duet.backend.processes import Process

# Maps this rank's array (N, ...) to those of all ranks in order; N may differ. Collective.
AllGather = Callable[[np.ndarray], list[np.ndarray]]


def gather_alone(array: np.ndarray) -> list[np.ndarray]:
    return [array]


class World(NamedTuple):
    """This process and its connection to the others; by default the only process."""

    process: Process = Process()
    all_gather: AllGather = gather_alone

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank; call it on all ranks."""
        # In the lengths, which are sent first: without a flag, nothing else is.
        return any(map(len, self.all_gather(np.zeros(int(flag), np.uint8))))

    def broadcast_text(self, text: str) -> str:
        """Return rank 0's text; call it on all ranks."""
        return self._gather_texts(text)[0].decode("utf-8", "surrogateescape")

    def all_have(self, text: str) -> bool:
        """Return whether all ranks have the same text."""
        return len(set(self._gather_texts(text))) == 1

    def _gather_texts(self, text: str) -> list[bytes]:
        """Return each rank's text, which may be a file name that is not UTF-8."""
        encoded = np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)
        return [found.tobytes() for found in self.all_gather(encoded)]


ALONE = World()
