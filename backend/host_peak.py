"""The most memory that this process has had at a time, as Linux counts it."""

from __future__ import annotations

import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CLEAR_REFERENCES, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
RESET_PEAK = "5"  # man 5 proc: sets the peak to what the process has now
PEAK = "VmHWM:"


def peak_during(run: Callable[[], object]) -> int:
    """Return the most bytes that this process has in memory during a call, or has had before it
    if the system does not forget.
    """
    with suppress(OSError):  # no Linux, or /proc is read-only
        CLEAR_REFERENCES.write_text(RESET_PEAK)
    run()
    try:
        lines = STATUS.read_text().splitlines()
        (kibibytes,) = (int(line.split()[1]) for line in lines if line.startswith(PEAK))
    except (OSError, ValueError):
        kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes * 1024
