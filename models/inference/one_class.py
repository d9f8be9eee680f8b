"""A model whose classes are not told apart, as val.py --single-cls scores it.

Before: `predictor.py` makes the model. After: `models/evaluation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models.inference.protocol import Predictor


class OneClass:
    """A predictor of a single class: all that another predictor finds counts as this class.

    Attributes:
        head: of that one; it finishes rows of any number of classes.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self.head, self.stride = predictor.head, predictor.stride
        self.fixed_size, self.takes_arrays = predictor.fixed_size, predictor.takes_arrays

    def __call__(self, images: Any) -> Any:
        return self.predictor(images)

    def decode_above(self, raw: Any, confidence_threshold: float) -> list[np.ndarray]:
        """Return the rows of the other one, with only the class score of the best class."""
        images = self.predictor.decode_above(raw, confidence_threshold)
        return [self.head.of_best_class(rows) for rows in images]

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError if images (B, 3, H, W) take too much."""
        self.predictor.require_memory(shape, trains)
