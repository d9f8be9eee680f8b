"""Goals of docs/en/performance.md as data: which figure of which row, and its limit.

The one of `val_host` is left out: it needs weights and data, so no run of all scripts has it.

Before: `results.py` has the rows. After: `report.py` says which goals a run reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from backend.checks import CPU
from benchmarks.results import COMPILED, Script
from benchmarks.side_by_side import Timing
from utils.comparison.words import number

UNITS = {"ratio": "of the reference's time", "median": "ms", "host_waits": "waits of the host"}


@dataclass(frozen=True)
class Goal:
    """What a figure may be at most, in each row whose case and name match the patterns.

    Attributes:
        figure: one of `UNITS`, a field of `Timing`.
        on_gpu: whether it is a goal for a GPU; else it is one for a CPU.
    """

    script: str
    case: str
    name: str
    figure: str
    most: float
    on_gpu: bool = False

    def rows(self, scripts: Sequence[Script]) -> list[Timing]:
        """Return the rows that the goal is for and that have its figure."""
        return [
            timing
            for script in scripts
            if script.name.removesuffix(COMPILED) == self.script and self.is_for(script.device)
            for timing in script.timings
            if fnmatchcase(timing.case, self.case) and fnmatchcase(timing.name, self.name)
            if not math.isnan(self.value(timing))
        ]

    def is_for(self, device: str) -> bool:
        return (device != CPU) == self.on_gpu

    def value(self, timing: Timing) -> float:
        """Return the figure of a row; NaN if it has none."""
        found = getattr(timing, self.figure)
        return math.nan if found is None else float(found)

    def limit(self) -> str:
        return f"{number(self.most)} {UNITS[self.figure]}"


GOALS = (
    Goal("ciou", "10000 boxes", "fused", "ratio", 0.4),
    Goal("ema", "yolov5s", "multi_tensor", "ratio", 0.25),
    Goal("train_step", "16 x 320 px", "channels-last", "ratio", 0.65),
    Goal("train_step", "16 x 320 px", "bf16", "ratio", 0.65),
    Goal("loader", "8 samples, 640 px", "fast", "ratio", 0.33),
    Goal("loader", "8 samples, 640 px", "fast, --cache ram", "ratio", 0.33),
    Goal("detect", "*, 640 px, batch 1", "detect", "ratio", 1.15),
    Goal("ciou", "3000,3000,3000 boxes", "fused", "median", 0.05, on_gpu=True),
    Goal("ema", "yolov5s", "multi_tensor", "median", 0.15, on_gpu=True),
    Goal("step_table", "*", "*, compiled", "host_waits", 0, on_gpu=True),
)
