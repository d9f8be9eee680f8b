"""From which score on a finding is worth a person's time, by kind.

`benchmarks/audit.py` measures them: from these scores on, about half of what is found in COCO's
labels is an error that was planted there, on half of the images. They hold for other data as far as
its labels are as good and the model as sure.
"""

from __future__ import annotations

from collections.abc import Mapping

from utils.data.audit.findings import KINDS, MISPLACED, OVERLOOKED, SWAPPED, UNSEEN

WORTH: Mapping[str, float] = {OVERLOOKED: 0.6, UNSEEN: 0.3, SWAPPED: 0.1, MISPLACED: 0.45}


def lowest_scores(asked: float | None) -> Mapping[str, float]:
    """Return the lowest score of a finding of each kind: the one asked for, or what is measured."""
    return WORTH if asked is None else dict.fromkeys(KINDS, asked)
