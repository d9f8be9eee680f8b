"""Seconds of an epoch beside YOLOv5 7.0, means of the rounds in the table of measurements.md."""

from __future__ import annotations

import numpy as np

from docs.figures.bars import bars, table_below
from docs.figures.drawing import Figure

WORDS = {
    "en": ("An epoch of training takes Duet half of YOLOv5's time, or less",
           "seconds per epoch, two cores of an AMD EPYC", "bfloat16"),
    "zh": ("训练一轮，Duet 用时不到 YOLOv5 的一半", "每轮的秒数，AMD EPYC 的两个核", "bfloat16"),
}  # fmt: skip


def draw(language: str) -> Figure:
    title, unit, half = WORDS[language]
    rows = []
    for name, ours, theirs, *_ in table_below("measurements.md", "Beside the public YOLOv5"):
        means = [
            round(np.mean([float(one) for one in cell.split(", ")]), 1) for cell in (ours, theirs)
        ]
        precision = "float32" if "float32" in name else half
        rows.append((f"YOLOv5{name[0]}, {precision}", means))
    return bars(title, language, unit, ("Duet", "YOLOv5 7.0, float32"), rows)
