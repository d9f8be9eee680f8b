"""The result of each frame, and of all: the lines that detect.py prints.

Before: `models/inference/pipeline.py`. After: the terminal or a log.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from backend.words import count
from utils.media.source import Source
from utils.results.image_result import ImageResult

SHOWN_CLASSES = 5


class Done(NamedTuple):
    """The result of a frame, or of a source that broke."""

    source: Source
    result: ImageResult | None
    problem: str = ""  # why the source gives no frame, or no more of them
    input_size: tuple[int, int] | None = None  # (height, width) that the network took


class Totals:
    """Counts what is done.

    Attributes:
        num_frames: in which something was looked for.
        num_broken: sources that were left out, or broke off.
    """

    def __init__(self) -> None:
        self.num_frames = self.num_broken = 0
        self._found: Counter[str] = Counter()
        self._last_source: Source | None = None

    def add(self, done: Done) -> None:
        """Count a frame, or a source that broke."""
        if done.result is None:
            self.num_broken += 1
        else:
            self.num_frames += 1
            self._found.update(done.result.counted)
            self._last_source = done.source

    def problem_line(self, done: Done) -> str:
        """Return what to say of a source that broke."""
        began = done.source is self._last_source
        what = "ends here and is incomplete" if began else "left out"
        return f"{done.source.name}: {what}: {done.problem}"

    def found_line(self) -> str:
        """Return how many of each class were found, the most frequent classes first."""
        if not self._found:
            return "found: nothing; a lower --conf-thres finds more"
        # Of equal numbers the name decides: threads must not change a line.
        ranking = sorted(self._found.items(), key=lambda item: (-item[1], item[0]))
        parts = [f"{name} {number:,}" for name, number in ranking[:SHOWN_CLASSES]]
        if others := ranking[SHOWN_CLASSES:]:
            total = sum(number for _, number in others)
            parts.append(f"{count(len(others), 'other class', 'other classes')} {total:,}")
        return f"found: {', '.join(parts)}"
