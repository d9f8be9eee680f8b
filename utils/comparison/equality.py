"""Whether two runs did the same work, and whether their losses stayed together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from utils.comparison.statistics import Document

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
    left, right = ({"framework": x["framework"], **x["work"]} for x in (reference, candidate))
    return _unlike(left, right, reference, candidate, by_design | IDENTITY)


def other_means(reference: Document, candidate: Document) -> list[str]:
    """List the other methods by which the candidate did the same work, one per line."""
    left, right = (run.get("means", {}) for run in (reference, candidate))
    return _unlike(left, right, reference, candidate, set())


def _unlike(
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    reference: Document,
    candidate: Document,
    allowed: Set[str],
) -> list[str]:
    left, right = flatten(left), flatten(right)
    here, there = (f"{run['cell']} round {run['round']}" for run in (reference, candidate))
    return [
        f"{name}: {left.get(name, 'absent')} in {here}, {right.get(name, 'absent')} in {there}"
        for name in {**left, **right}
        if (name in left, left.get(name)) != (name in right, right.get(name))
        and name not in allowed
    ]


def unequal_rounds(runs: Sequence[Document]) -> list[str]:
    """List how later rounds of one cell differ from its first, in work or methods."""
    return [
        line
        for run in runs[1:]
        for line in (*differences(runs[0], run, set()), *other_means(runs[0], run))
    ]


def loss_gap(reference: Document, candidate: Document) -> Document | None:
    """Compare the losses of the first batches; None if one run has no losses.

    Returns:
        The number of `batches`, the `worst` relative difference of the summed losses (None: one
        is not finite), its `worst_batch` from 1, the `tolerance`, and whether they `diverged`.
    """
    pairs = list(zip(reference["losses"], candidate["losses"], strict=False))[:JUDGED_BATCHES]
    if not pairs:
        return None
    gaps = [_relative(_summed(left), _summed(right)) for left, right in pairs]
    worst = max(gaps)  # none is NaN
    precisions = {run["work"].get("precision") for run in (reference, candidate)}
    tolerance = TOLERANCE if precisions <= {"float32", "float64"} else HALF_TOLERANCE
    return {
        "batches": len(gaps),
        "worst": worst if math.isfinite(worst) else None,
        "worst_batch": gaps.index(worst) + 1,
        "tolerance": tolerance,
        "diverged": worst > tolerance,
    }


def _summed(terms: Sequence[float | None]) -> float:
    """Return the loss of a batch from its terms; infinite if one term is not finite."""
    finite = [term for term in terms if term is not None and math.isfinite(term)]
    return sum(finite) if len(finite) == len(terms) else math.inf


def _relative(reference: float, value: float) -> float:
    """Return the relative difference; infinite if either value is infinite."""
    if math.isinf(reference) or math.isinf(value):
        return math.inf
    return abs(value - reference) / max(abs(reference), 1e-12)
