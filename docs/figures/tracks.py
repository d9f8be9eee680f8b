"""Objects of a panning camera with the numbers that `--track` gives them, detect/tracker.py.

The frames are cut from two photographs side by side, with the boxes of docs/photos.json.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from docs.figures.drawing import PLATE, WIDTH, Figure, plate_width
from docs.figures.pictures import on_picture, photograph
from duet.utils.detect.media.source import Frame
from duet.utils.detect.tracker import NO_ID, Tracker
from duet.utils.geometry.detections import Detections

WORDS = {
    "en": "frame {}",
    "zh": "第 {} 帧",
}
NAMES = ("astronaut.jpg", "photographer.jpg")
FRAMES, SHOWN = 25, (5, 12, 19)
SCORE = 0.8
GAP, TOP = 9, 26
PANEL = (WIDTH - 2 * GAP) / 3


class Seen(NamedTuple):
    """A frame, and what is tracked in it."""

    pixels: np.ndarray
    boxes_xyxy: np.ndarray
    ids: np.ndarray


@cache
def clip() -> list[Seen]:
    """Return the frames with their tracks."""
    strip = np.concatenate([photograph(name).decode() for name in NAMES], axis=1)
    side = strip.shape[0]
    boxes = np.concatenate([
        photograph(name).objects.boxes_xyxy + [place * side, 0, place * side, 0]
        for place, name in enumerate(NAMES)
    ])  # fmt: skip
    tracker = Tracker(None, confidence_threshold=0.5)
    seen = []
    for number, left in enumerate(np.linspace(0, strip.shape[1] - side, FRAMES).astype(int)):
        pixels = strip[:, left : left + side]
        moved = (boxes - [left, 0, left, 0]).clip(0, side)
        shown = moved[moved[:, 2] - moved[:, 0] > side / 8].astype(np.float32)
        found = Detections(shown, np.full(len(shown), SCORE), np.zeros(len(shown), np.int64))
        kept, ids = tracker.update(found, Frame(pixels, Path("clip.mp4"), number))
        known = ids != NO_ID
        seen.append(Seen(pixels, kept.boxes_xyxy[known], ids[known]))
    return seen


def draw_tracks(language: str) -> Figure:
    word = WORDS[language]
    figure = Figure(TOP + PANEL, language)
    frames = clip()
    scale = PANEL / frames[0].pixels.shape[0]
    for place, number in enumerate(SHOWN):
        at = place * (PANEL + GAP), TOP
        figure.text(at[0], TOP - 8, word.format(number), "bold")
        figure.image(frames[number].pixels, *at, PANEL, PANEL)
        for box, track in zip(frames[number].boxes_xyxy, frames[number].ids, strict=True):
            on_picture(figure, box, int(track), at, scale)
            label = f"person {track}"
            x = at[0] + min(box[0] * scale, PANEL - plate_width(label))
            figure.plate(x, at[1] + box[3] * scale - PLATE, label)
    return figure
