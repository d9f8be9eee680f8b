"""What was found, in words.

Before: `result.py`. After: lines on screen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def count_by_class(class_index: np.ndarray, class_names: Sequence[str]) -> str:
    """Return "2 persons, 1 bus", by class number; "(no detections)" for none."""
    numbers, counts = np.unique(class_index, return_counts=True)
    found = [
        f"{number} {class_names[index] if number == 1 else _plural(class_names[index])}"
        for index, number in zip(numbers.tolist(), counts.tolist(), strict=True)
    ]
    return ", ".join(found) or "(no detections)"


def _plural(name: str) -> str:
    """Return a name with an s, as the public lines have it, unless that would make "skiss"."""
    return f"{name}s" if name[-1:].isascii() and not name.endswith("s") else name
