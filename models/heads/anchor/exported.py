"""What NMS in an exported file found -> rows as the head decodes them.

Before: `models/inference/exported.py` ran the file. After: `head.py` finishes the rows.
"""

from __future__ import annotations

import numpy as np

from backend.words import count
from utils.errors import UserError, brief


def rows_of_detections(detections: np.ndarray, num_classes: int) -> np.ndarray:
    """Map (K, 6) x1, y1, x2, y2, score, class to (K, 5 + C) as a model has them.

    They are what NMS kept, each sure of its class: NMS keeps them again. Unused rows are left out.

    Raises:
        UserError: a class that the model does not have.
    """
    used = detections[detections[:, 4] > 0]
    classes = used[:, 5]
    wrong = ~((classes >= 0) & (classes < num_classes))
    if wrong.any():
        raise UserError(
            f"it returns the class {brief(float(classes[wrong][0]))}, but its metadata has "
            f"{count(num_classes, 'class', 'classes')}; export it again"
        )
    rows = np.zeros((len(used), 5 + num_classes), np.float32)
    rows[:, 0:2] = (used[:, 0:2] + used[:, 2:4]) / 2
    rows[:, 2:4] = used[:, 2:4] - used[:, 0:2]
    rows[:, 4] = used[:, 4]
    rows[np.arange(len(rows)), 5 + classes.astype(int)] = 1
    return rows
