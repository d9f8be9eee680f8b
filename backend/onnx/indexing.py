"""Normalize tensor indices, before `recording.py` turns them into a Slice."""

from __future__ import annotations

from typing import Any

FAR = 2**62  # beyond any size; ONNX clamps it to the end


def without_ellipsis(index: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Return the index expanded to one part per dimension."""
    missing = ndim - sum(part is not ... for part in index)
    if missing < 0 or sum(part is ... for part in index) > 1:
        raise IndexError(f"{len(index)} indices for a tensor of {ndim} dimensions")
    at = next((i for i, part in enumerate(index) if part is ...), len(index))
    return (*index[:at], *[slice(None)] * missing, *index[at + 1 :])


def bounds_of(part: Any) -> tuple[Any, ...]:
    """Return the numbers in one part of an index."""
    return (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)


def span_of(part: Any, size: int) -> tuple[int, int, int]:
    """Return start, end and step for ONNX's Slice."""
    if isinstance(part, int):
        if not -size <= part < size:
            raise IndexError(f"index {part} is out of range for a dimension of size {size}")
        return part, part + 1 if part != -1 else FAR, 1
    if not isinstance(part, slice):
        raise TypeError(
            f"an index cannot be a {type(part).__name__}; accepted: integers, slices and ..."
        )
    step = 1 if part.step is None else part.step
    if step < 1:
        raise ValueError(f"slice step {step} is not supported; accepted: 1 or more")
    return part.start or 0, FAR if part.stop is None else part.stop, step
