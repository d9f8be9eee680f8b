"""Whether two runs did the same work, and whether their losses stayed together.

Before: `measured.py`. After: `document.py`; compare.py refuses what is not equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from utils.comparison.measured import Document

# Settings that are not part of the work.
IDENTITY = {"settings.backend", "settings.project", "settings.name", "settings.exist_ok"}
# Only the first batches: early steps double any difference, so later two runs differ by rounding
# alone. In the first batches the backends were 2e-5 apart on a CPU (YOLOv5n, built-in dataset).
# TF32 rounds a thousand times as coarsely.
JUDGED_BATCHES = 10
TOLERANCE = 1e-2
HALF_TOLERANCE = 1e-1  # bfloat16 keeps 8 bits, 4e-3 a rounding


def flatten(work: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join nested names by dots."""
    flat: dict[str, Any] = {}
    for name, value in work.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def differences(reference: Document, candidate: Document, by_design: Set[str]) -> list[str]:
    """List how the candidate's work and framework differ from the reference's, a line each.

    Args:
        reference, candidate: runs with "work".
        by_design: names that may differ.
    """
    left, right = (
        flatten({"framework": run["framework"], **run["work"]}) for run in (reference, candidate)
    )
    allowed = by_design | IDENTITY
    return [
        line for name, line in _unlike(left, right, reference, candidate) if name not in allowed
    ]


def other_means(reference: Document, candidate: Document) -> list[str]:
    """List the other methods by which the candidate did the same work, one per line."""
    left, right = (flatten(run.get("means", {})) for run in (reference, candidate))
    return [line for _, line in _unlike(left, right, reference, candidate)]


def _unlike(
    left: Mapping[str, Any], right: Mapping[str, Any], reference: Document, candidate: Document
) -> list[tuple[str, str]]:
    """Return the names with different values, and a line for each."""
    return [
        (
            name,
            f"{name}: {left.get(name, 'absent')} in {_who(reference)}, "
            f"{right.get(name, 'absent')} in {_who(candidate)}",
        )
        for name in {**left, **right}
        if (name in left, left.get(name)) != (name in right, right.get(name))
    ]


def _who(run: Document) -> str:
    return f"{run['cell']} round {run['round']}"


@dataclass(frozen=True)
class LossGap:
    """How far the losses of two runs are apart after the same batches."""

    batches: int  # number of batches that were judged
    worst: float | None  # relative difference of the summed losses; None: one is not finite
    worst_batch: int  # from 1
    tolerance: float
    diverged: bool


def loss_gap(reference: Document, candidate: Document) -> LossGap | None:
    """Compare the losses of the first batches; None if one run has no losses."""
    pairs = list(zip(reference["losses"], candidate["losses"], strict=False))[:JUDGED_BATCHES]
    if not pairs:
        return None
    gaps = [_relative(summed_loss(left), summed_loss(right)) for left, right in pairs]
    worst = max(gaps)  # none is NaN
    precisions = {run["work"].get("precision") for run in (reference, candidate)}
    tolerance = TOLERANCE if precisions <= {"float32", "float64"} else HALF_TOLERANCE
    shown = worst if math.isfinite(worst) else None
    return LossGap(len(gaps), shown, gaps.index(worst) + 1, tolerance, worst > tolerance)


def summed_loss(terms: Sequence[float | None]) -> float:
    """Return the loss of a batch from its terms; infinite if one term is not finite."""
    finite = [term for term in terms if term is not None and math.isfinite(term)]
    return sum(finite) if len(finite) == len(terms) else math.inf


def _relative(reference: float, value: float) -> float:
    """Return the relative difference; infinite if either value is infinite."""
    if math.isinf(reference) or math.isinf(value):
        return math.inf
    return abs(value - reference) / max(abs(reference), 1e-12)


def unequal_rounds(runs: Sequence[Document]) -> list[str]:
    """List how later rounds of one cell differ from its first, in work or methods."""
    return [
        line
        for run in runs[1:]
        for line in (*differences(runs[0], run, set()), *other_means(runs[0], run))
    ]
