"""The lines of a training on screen: a heading, and a row of figures per epoch, in 80 columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

ROWS_A_HEADING = 25
MIN_WAIT = 0.1  # of an epoch's seconds, from which on the wait for data is told
_EPOCH_WIDTH = 9  # of "1000/1000"
_NUMBER_WIDTH = 5  # of "0.394", and a gap of two


class EpochTable:
    """Prints a row per epoch, under a heading that is repeated from time to time.

    Args:
        losses: of the task, each with its short name; as `Head.loss_names`.
        figures: likewise; as `Head.row_names`.
    """

    def __init__(self, losses: Mapping[str, str], figures: Mapping[str, str]) -> None:
        self._names = (*losses.values(), *figures.values())
        self._rows = 0

    def heading(self) -> str:
        """Return the names of the columns."""
        cells = [f"{name:>{self._width(name)}}" for name in self._names]
        return f"{'epoch':>{_EPOCH_WIDTH}}{''.join(cells)}{'seconds':>8}"

    def lines(
        self, epoch: int, epochs: int, numbers: Sequence[float], seconds: float, data_wait: float
    ) -> list[str]:
        """Return the lines of an epoch: its row, under a heading if one is due.

        Args:
            numbers: losses and figures, in their order; NaN if nothing was measured.
            data_wait: seconds in which the step waited for data and computed nothing.
        """
        heading = [] if self._rows % ROWS_A_HEADING else [self.heading()]
        self._rows += 1
        cells = [
            f"{'-' if math.isnan(number) else f'{number:.3f}':>{self._width(name)}}"
            for name, number in zip(self._names, numbers, strict=True)
        ]
        row = f"{f'{epoch}/{epochs}':>{_EPOCH_WIDTH}}{''.join(cells)}{seconds:8.1f}"
        if data_wait > MIN_WAIT * seconds:
            row += f"  wait {100 * data_wait / seconds:.0f}%"
        return [*heading, row]

    @staticmethod
    def _width(name: str) -> int:
        return max(len(name), _NUMBER_WIDTH) + 2
