"""What a device did during a call: `contract.Device.profile`. Imports no framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NO_OPERATION = "(of no operation)"
ROUNDING = 0.01  # of the time of all pieces: less is not told


@dataclass(frozen=True)
class DeviceProfile:
    """What a device did during a call.

    Attributes:
        seconds: by the operation that asked for the work.
        launched: kernels and copies of a GPU; operations that were called on a CPU.
        busy_seconds: while at least one of them ran.
        span_seconds: from the start of the first to the end of the last.
    """

    seconds: Mapping[str, float]
    launched: int
    busy_seconds: float
    span_seconds: float


def profile_of(
    seconds: Mapping[str, float], intervals: Iterable[tuple[float, float]]
) -> DeviceProfile:
    """Return the profile of pieces of work that begin and end at such seconds, and may overlap.

    Work of which no operation is known, as that of a graph replayed at once, has a name of its own.
    """
    pieces = sorted(intervals)
    if not pieces:
        return DeviceProfile(seconds, 0, 0.0, 0.0)
    total = sum(end - start for start, end in pieces)
    unknown = total - sum(seconds.values())
    if unknown > ROUNDING * total:
        seconds = {**seconds, NO_OPERATION: unknown}
    busy, first, until = 0.0, pieces[0][0], pieces[0][0]
    for start, end in pieces:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return DeviceProfile(seconds, len(pieces), busy, until - first)
