"""The lowest score at which a finding is worth a person's time, by kind.

`benchmarks/audit.py` measures them on one half of 256 images of COCO, into whose labels errors are
planted: from these scores on, half of what is found is planted, rounded up to the next 0.05. Where
nobody labelled an object the measure misleads, as COCO itself lacks so many: it gives 0.6, while of
the 55 that are found in the labels as they are, from 0.45 on, two thirds are right by eye.

They hold for other data as far as a twentieth of its labels is wrong too, and the model as sure.
"""

from __future__ import annotations

from collections.abc import Mapping

from utils.data.audit.findings import KINDS, MISPLACED, OVERLOOKED, SWAPPED, UNSEEN

WORTH: Mapping[str, float] = {OVERLOOKED: 0.45, UNSEEN: 0.3, SWAPPED: 0.1, MISPLACED: 0.45}


def lowest_scores(asked: float | None) -> Mapping[str, float]:
    """Return the lowest score of a finding of each kind: the one asked for, or what is measured."""
    return WORTH if asked is None else dict.fromkeys(KINDS, asked)
