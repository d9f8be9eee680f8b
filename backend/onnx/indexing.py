"""What an index of a tensor means, before `recording.py` makes a Slice of it."""

from __future__ import annotations

from typing import Any

FAR = 2**62  # beyond any side; ONNX takes it for the end


def without_ellipsis(index: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Return an index of as many parts as there are dimensions."""
    missing = ndim - sum(part is not ... for part in index)
    if missing < 0 or sum(part is ... for part in index) > 1:
        raise IndexError(f"{len(index)} indices for a tensor of {ndim} dimensions")
    at = next((i for i, part in enumerate(index) if part is ...), len(index))
    return (*index[:at], *[slice(None)] * missing, *index[at + 1 :])


def bounds_of(part: Any) -> tuple[Any, ...]:
    """Return the numbers that a part of an index is made of."""
    return (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)


def span_of(part: Any, size: int) -> tuple[int, int, int]:
    """Return start, end and step of ONNX's Slice."""
    if isinstance(part, int):
        if not -size <= part < size:
            raise IndexError(f"index {part} is outside a side of {size}")
        return part, part + 1 if part != -1 else FAR, 1
    if not isinstance(part, slice):
        raise TypeError(
            f"an index is a {type(part).__name__}; integers, slices and ... are accepted"
        )
    step = 1 if part.step is None else part.step
    if step < 1:
        raise ValueError(f"a slice has a step of {step}; accepted: from 1 up")
    return part.start or 0, FAR if part.stop is None else part.stop, step
