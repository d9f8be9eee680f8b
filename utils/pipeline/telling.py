"""What a person sees of a run of detect.py: one line per image, or a bar, and the last lines.

Before: `models/inference/pipeline.py`. After: the terminal or a log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from backend.words import count
from utils.media.source import Source
from utils.pipeline.totals import Done, Totals
from utils.results.summary import summary
from utils.screen.progress import Progress
from utils.screen.text import say

FEW = 20  # images that have a line each; more of them, and videos, have a bar

log = logging.getLogger("detect")


class Telling:
    """Prints the result of each frame, in the order of the sources; a context manager."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._totals = Totals()
        self._num_sources = len(sources)
        self._only_name = str(sources[0].name) if len(sources) == 1 else ""
        self._images_alone = all(source.kind == "image" for source in sources)
        self._unit = "image" if self._images_alone else "frame"
        total = self._num_sources if self._images_alone else None
        self._progress = Progress(total, "detecting", f"{self._unit}s")
        self._start = time.monotonic()

    def __enter__(self) -> Telling:
        self._progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.__exit__(*error)

    def shown(self, source: str) -> str:
        """Return --source with how much it is; a single source shows itself, without a password."""
        return self._only_name or f"{source}, {self._total}"

    @property
    def _total(self) -> str:
        return count(self._num_sources, "image" if self._images_alone else "source")

    @property
    def done(self) -> str:
        """What is done, in words."""
        return count(self.num_frames, self._unit)

    @property
    def num_frames(self) -> int:
        """Frames in which something was looked for."""
        return self._totals.num_frames

    @property
    def num_broken(self) -> int:
        """Sources that were left out, or broke off."""
        return self._totals.num_broken

    def tell(self, done: Done) -> None:
        """Tell of a frame, or of a source that broke."""
        self._totals.add(done)
        if self.num_frames == 1 and self._num_sources == 1 and done.source.num_frames is not None:
            self._progress.expect(done.source.num_frames)
        if done.result is None:
            log.warning("%s", self._totals.problem_line(done))
        elif self._images_alone and self._num_sources <= FEW:
            number = f"{self.num_frames + self.num_broken}/{self._num_sources}"
            log.info("%s %s: %s", number, done.source.name, summary(done.result, done.input_size))
        self._progress.update(f"{self._speed():.1f} {self._unit}s/s")

    def tell_all(self, by_stage: Mapping[str, float]) -> None:
        """Print what was found, how fast, and how much was left out.

        Args:
            by_stage: seconds of each stage; they run side by side.
        """
        stages = ", ".join(f"{stage} {spent:.1f} s" for stage, spent in by_stage.items())
        say(
            self._totals.found_line(),
            f"{self.done} in {self._seconds():.1f} s, {self._speed():.1f} {self._unit}s/s; "
            f"side by side: {stages}",
        )
        if self.num_broken:
            say(f"left out or incomplete: {self.num_broken:,} of {self._total}, named above")

    def _seconds(self) -> float:
        return time.monotonic() - self._start

    def _speed(self) -> float:
        return self.num_frames / max(self._seconds(), 1e-9)
