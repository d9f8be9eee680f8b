"""The times of a source's frames for a tracker: they increase, with no large gap between frames.

Before: `utils/media/frame.py`. After: `tracker.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction

USUAL_RATE = 30.0  # frames a second
HIGHEST_RATE = 1000.0  # a broken header says more


class Clock:
    """Seconds since the first frame.

    It runs slower if all frames are far from each other, as those of a stream that the network
    is too slow for: else each would come after all tracks have ended. A pause counts in full.
    """

    def __init__(self, rate: float | Fraction | None, longest_usual_gap: float) -> None:
        """Make a clock.

        Args:
            rate: frames per second; one that is unknown or cannot be counts as 30.
            longest_usual_gap: seconds that may pass from frame to frame, unless they pause.
        """
        self.rate = float(rate) if rate and 0 < rate <= HIGHEST_RATE else USUAL_RATE
        self._longest = longest_usual_gap
        self._shown: float | None = None
        self._gap = 1 / self.rate
        self._now = 0.0

    def read(self, shown: float | None) -> float:
        """Return the time of the next frame, later than that of the last.

        Args:
            shown: seconds after the start of the source; where None, or not after the frame before,
                the frame comes one step of the rate after it.
        """
        gap = 1 / self.rate
        if shown is not None and self._shown is not None and 0 < shown - self._shown < math.inf:
            gap = shown - self._shown
        self._now += gap / max(1.0, min(gap, self._gap) / self._longest)
        self._gap, self._shown = gap, shown
        return self._now
