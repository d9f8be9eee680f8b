"""Verify fast paths against plain ones on the user's device before using them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import numpy as np

# Results by name, all from the same fixed inputs.
Probe = Callable[[], Mapping[str, np.ndarray]]

log = logging.getLogger("models")


def is_proved(
    path: str, implementation: str, run_fast: Probe, run_plain: Probe, tolerance: float
) -> bool:
    """Return whether a fast path runs and matches the plain one; log the outcome.

    Args:
        path: what was requested, and where.
        implementation: name of the fast implementation.
        run_fast, run_plain: compute the same named results from the same inputs.
        tolerance: see `find_problem`.
    """
    problem = find_problem(run_fast, run_plain, tolerance)
    if problem:
        log.info("%s: using the plain path (%s: %s)", path, implementation, problem)
    else:
        log.info("%s: %s", path, implementation)
    return not problem


def find_problem(run_fast: Probe, run_plain: Probe, tolerance: float) -> str:
    """Return why a fast path cannot replace the plain one; "" if it can.

    Args:
        tolerance: largest accepted difference, relative to the largest plain value of a result.
    """
    plain = run_plain()
    try:
        fast = run_fast()
        for name, wanted in plain.items():
            with np.errstate(invalid="ignore"):
                error = np.abs(fast[name] - wanted).max(initial=0.0)
            allowed = tolerance * np.abs(wanted).max(initial=0.0)
            if not error <= allowed:  # NaN differs too
                return f"{name} differs by {error:.1e}; at most {allowed:.1e} is accepted"
    except Exception as failure:  # compilers, drivers and kernels raise arbitrary errors
        return f"{type(failure).__name__}: {failure}".partition("\n")[0]
    return ""
