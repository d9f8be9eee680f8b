"""Screen output of detect.py: a line per image or a progress bar, a window, totals."""

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np

from duet.utils.detect.media.source import Source
from duet.utils.detect.results.image_result import ImageResult
from duet.utils.errors import UserError
from duet.utils.progress import Progress
from duet.utils.text import count, say

FEW = 1000  # images with a line each; more images, and videos, have a progress bar
SHOWN_CLASSES = 5
OTHER_CLASSES = "other class", "other classes"
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")  # one of them names the screen, on Linux
WITHOUT = "leave it out, and the images are in the run's folder"

log = logging.getLogger("detect")


class Done(NamedTuple):
    source: Source
    result: ImageResult | None
    problem: str = ""  # why the source has no frame, or no further ones
    input_size: tuple[int, int] | None = None  # (height, width) that the network took
    milliseconds: float = 0.0  # of the network, its batch divided by the images in it


class RunReport:
    """Prints the result of each frame, in source order; close `progress`."""

    def __init__(self, sources: Sequence[Source], argument: str) -> None:
        """Begin a report; argument: the --source shown for several sources."""
        self.num_frames = 0
        self.num_broken = 0  # sources that were skipped or broke off
        self._found: Counter[str] = Counter()  # objects by class, frames by class of tracked ones
        self._frames: Counter[str] = Counter()
        self._tracks: set[tuple[object, ...]] = set()  # source, class and number of each object
        self._last_source: Source | None = None
        self._num_sources = len(sources)
        self._images_alone = all(source.kind == "image" for source in sources)
        self._unit, what = ("image", "image") if self._images_alone else ("frame", "source")
        self._total = count(self._num_sources, what)
        # A single source shows itself, without a password.
        alone = len(sources) == 1
        self.sources = str(sources[0].name) if alone else f"{argument}, {self._total}"
        total = self._num_sources if self._images_alone else None
        self.progress = Progress(total, "detecting", f"{self._unit}s")
        self._start = time.monotonic()

    @property
    def done(self) -> str:
        return count(self.num_frames, self._unit)

    def add(self, done: Done) -> None:
        name = done.source.name
        if done.result is None:
            self.num_broken += 1
            began = done.source is self._last_source
            what = "ends here and is incomplete" if began else "left out"
            log.warning("%s: %s: %s", name, what, done.problem)
        else:
            self.num_frames += 1
            self._count(done.result)
            self._last_source = done.source
            if self._images_alone and self._num_sources <= FEW:
                number = f"{self.num_frames + self.num_broken}/{self._num_sources}"
                summary = done.result.summary(done.input_size)
                log.info("%s %s: %s, %.1f ms", number, name, summary, done.milliseconds)
        if self.num_frames == 1 and self._num_sources == 1 and done.source.num_frames is not None:
            self.progress.expect(done.source.num_frames)
        self.progress.update(f"{self._speed():.1f} {self._unit}s/s")

    def _count(self, result: ImageResult) -> None:
        """Count detections: a tracked object once, and the frames in which its class appears."""
        if result.track_ids is None:
            self._found.update(result.counted)
            return
        source = result.frame.source if result.frame.number is not None else None
        pairs = zip(result.names, result.track_ids.tolist(), strict=True)
        tracks = {(source, name, number) for name, number in pairs if number > 0} - self._tracks
        self._tracks |= tracks
        self._frames.update(set(result.names))
        self._found.update(dict.fromkeys(result.names, 0))  # none has a number in its first frame
        self._found.update(name for _, name, _ in tracks)

    def print_totals(self) -> None:
        speed = self._speed()
        rate = f"{speed:.1f} {self._unit}s/s, {1000 / speed:.1f} ms per {self._unit}"
        say(self.found_line(), f"{self.done} in {time.monotonic() - self._start:.1f} s, {rate}")
        if self.num_broken:
            say(f"left out or incomplete: {self.num_broken:,} of {self._total}, named above")

    def found_line(self) -> str:
        if not self._found:
            return "found: nothing; a lower --conf-thres finds more"
        # Sort ties by name, because thread order must not change the output.
        ranking = sorted(self._found.items(), key=lambda item: (-item[1], item[0]))
        shown, others = ranking[:SHOWN_CLASSES], ranking[SHOWN_CLASSES:]
        parts = [f"{name} {number:,}{self._in_frames(name)}" for name, number in shown]
        if others:
            total = sum(number for _, number in others)
            parts.append(f"{count(len(others), *OTHER_CLASSES)} {total:,}")
        return f"found: {', '.join(parts)}"

    def _in_frames(self, name: str) -> str:
        return f" in {count(self._frames[name], self._unit)}" if name in self._frames else ""

    def _speed(self) -> float:
        return self.num_frames / max(time.monotonic() - self._start, 1e-9)


def require_window(flag: str) -> None:
    if not cv2.currentUIFramework():
        raise UserError(
            f"{flag}: OpenCV {cv2.__version__} is the headless build, without windows; {WITHOUT}"
        )
    if sys.platform == "linux" and not any(os.environ.get(name) for name in SCREENS):
        raise UserError(f"{flag}: no display: {' and '.join(SCREENS)} are unset; {WITHOUT}")


def show_in_window(image: np.ndarray) -> bool:
    """Show an image (H, W, 3) uint8 RGB; return whether q or Esc asks for the end.

    Only for the main thread.
    """
    cv2.imshow("detect.py", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    return cv2.waitKey(1) & 0xFF in (ord("q"), 27)
