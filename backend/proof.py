"""Fast paths are proved on the user's own device, beside the plain ones, before they are used."""

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
    """Return whether a fast path runs and gives the results of the plain one; log it in one line.

    Args:
        path: what was asked for, and where.
        implementation: what would run.
        run_fast, run_plain: compute the same named results from the same inputs.
        tolerance: as for `find_problem`.
    """
    problem = find_problem(run_fast, run_plain, tolerance)
    if problem:
        log.info("%s: the plain path is used (%s: %s)", path, implementation, problem)
    else:
        log.info("%s: %s", path, implementation)
    return not problem


def find_problem(run_fast: Probe, run_plain: Probe, tolerance: float) -> str:
    """Return why a fast path cannot stand for the plain one, in words; "" if it can.

    Args:
        tolerance: largest difference of a result, relative to its largest plain value.
    """
    plain = run_plain()
    try:
        fast = run_fast()
        for name, wanted in plain.items():
            with np.errstate(invalid="ignore"):
                error = np.abs(fast[name] - wanted).max(initial=0.0)
            allowed = tolerance * np.abs(wanted).max(initial=0.0)
            if not error <= allowed:  # NaN differs too
                return f"its {name} differs by {error:.1e}; at most {allowed:.1e} is accepted"
    except Exception as failure:  # compilers, drivers and kernels fail with errors of their own
        return f"{type(failure).__name__}: {failure}".partition("\n")[0]
    return ""
