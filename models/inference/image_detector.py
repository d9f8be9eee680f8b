"""Images of any size -> what is found in them: views, network, and the end on the host.

Before: `predictor.py` and `views.py`. After: detect.py (`job.py`) and `models.load`. `views` and
`finish` work on the host alone, in any thread; `predict` is for one thread at a time, and waits.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from backend import autograd
from models.detector import images_to_tensor
from models.inference.predictor import Predictor
from models.inference.views import View, whole_view
from utils.detections import Detections
from utils.evaluation.nms import SuppressionSettings


class ImageDetector:
    """A predictor on a device, for images of any size."""

    def __init__(
        self,
        predictor: Predictor,
        device: str,
        image_size: int,
        suppression: SuppressionSettings,
    ) -> None:
        self.predictor = predictor
        self.device = device
        self.image_size = image_size
        self.suppression = suppression
        self._network = threading.Lock()

    def views(self, image: np.ndarray) -> list[View]:
        """Return what the network takes of an image (H, W, 3) uint8 RGB."""
        return [whole_view(image, self.image_size, self.predictor.stride)]

    def predict(self, views: Sequence[View]) -> list[np.ndarray]:
        """Return the rows that may count as found in each view, (K, ...) float32.

        Views of one shape are a batch; so what is found in one depends on no other.
        """
        shapes: dict[tuple[int, ...], list[int]] = {}
        for index, view in enumerate(views):
            shapes.setdefault(view.pixels.shape, []).append(index)
        rows: dict[int, np.ndarray] = {}
        for indices in shapes.values():
            images = np.stack([views[index].pixels.transpose(2, 0, 1) for index in indices])
            rows.update(zip(indices, self._predict_batch(images), strict=True))
        return [rows[index] for index in range(len(views))]

    def _predict_batch(self, images: np.ndarray) -> list[np.ndarray]:
        with self._network, autograd.no_grad():
            raw = self.predictor(images_to_tensor(images, self.device))
            return self.predictor.decode_above(raw, self.suppression.confidence_threshold)

    def finish(self, views: Sequence[View], rows: Sequence[np.ndarray]) -> Detections:
        """Return what is found in an image, in its pixels, from the rows of its views."""
        ((view,), (only,)) = views, rows
        return self.predictor.head.finish(only, view.placement, self.suppression)

    def detect(self, images: Sequence[np.ndarray]) -> list[Detections]:
        """Return what is found in each image (H, W, 3) uint8 RGB."""
        views = [self.views(image) for image in images]
        rows = iter(self.predict([view for image in views for view in image]))
        return [self.finish(image, [next(rows) for _ in image]) for image in views]
