"""Bytes and seconds of a sum over many devices, by arithmetic; docs/en/scaling.md has its tables.

A ring of the devices sums gradients: each exchanges its part of the sum with its neighbours
(Patarasuk and Yuan 2009: a ring moves the least bytes). A message takes latency + bytes /
bandwidth. Exchange and computation do not overlap, which is the worst case.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Link:
    """The link of one device or machine to the next; both directions at once."""

    latency: float  # seconds a message
    bandwidth: float  # bytes a second, each way


def ring_bytes(size: float, members: int) -> float:
    """Return the bytes that each member of a ring sends, and receives, to sum `size` bytes."""
    return 2 * (members - 1) / members * size


def ring_seconds(size: float, members: int, link: Link) -> float:
    """Return the time of such a sum: 2 (members - 1) messages, one after the other."""
    return 2 * (members - 1) * link.latency + ring_bytes(size, members) / link.bandwidth
