"""What was found, in words and as rows of a table, as the public YOLOv5 writes them.

In the table, as there, the lowest score comes first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from utils.text import printable


def table_lines(
    image_name: str,
    names: Sequence[str],
    scores: np.ndarray,
    track_ids: np.ndarray | None = None,
) -> str:
    """Return lines of CSV: image, class name, score (K,), track id (K,) if there are any."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in reversed(range(len(names))):
        last = [] if track_ids is None else [int(track_ids[row])]
        score = f"{float(scores[row]):.2f}"
        writer.writerow([printable(image_name), printable(names[row]), score, *last])
    return text.getvalue()


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
