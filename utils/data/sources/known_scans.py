"""What earlier scans found, by a key of all that the result of an image depends on.

Before: `label_cache.py` reads it. After: `labels.py` scans the images that are not among it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from utils.data.sources.scan_arrays import ScanArrays, arrays_of
from utils.files.known_keys import KnownKeys


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class KnownScans:
    """The results of images that were scanned before."""

    arrays: ScanArrays

    @cached_property
    def keys(self) -> KnownKeys:
        """Where each result lies in the arrays."""
        return KnownKeys(self.arrays.keys)


NOTHING_KNOWN = KnownScans(arrays_of([]))
