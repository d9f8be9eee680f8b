"""Images of any size -> what is found in them: views, a predictor, and the end on the host.

`views` and `finish` work only on the host, in any thread; `predict` is for `lanes` threads at a
time, and waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from duet.backend import autograd
from duet.models.heads.base import Head
from duet.models.inference.predictors import Predictor, network_input
from duet.utils.data.image.letterbox import Resizing, resize_linear
from duet.utils.data.image.view import View, place, view_of
from duet.utils.detections import SuppressionSettings
from duet.utils.evaluation.joining import join_views
from duet.utils.tiling import Tiling


class ImageDetector:
    """A predictor on a device, for images of any size.

    Args:
        image_size: what the long side of an image, or of a tile, becomes for the network; a
            predictor of a fixed size has its own.
        suppression: which predictions count as found.
        tiling: how an image is cut that is larger than a tile; None: it is not.
        lanes: how many threads may be in the network at once; others wait.
    """

    def __init__(
        self,
        predictor: Predictor,
        device: str,
        image_size: int,
        suppression: SuppressionSettings,
        tiling: Tiling | None = None,
        lanes: int = 1,
    ) -> None:
        self.predictor = predictor
        self.device = device
        self.image_size = image_size
        self.suppression = suppression
        self.tiling = tiling
        self.lanes = lanes
        self.resizing: Resizing = resize_linear  # of images and tiles
        self._network = threading.Semaphore(lanes)

    @property
    def head(self) -> Head:
        """That of the predictor, which knows the task."""
        return self.predictor.head

    def views(self, image: np.ndarray) -> list[View]:
        """Return what the network takes of an image (H, W, 3) uint8 RGB.

        It is the whole image; before it, of one that is larger than a tile, the tiles: their boxes
        are the finer ones, and of equal scores the first stays. The whole shows what is larger than
        a tile. Tiles are parts of this very image: leave it as it is until `predict` has seen them.
        """
        stride, fixed_size = self.predictor.stride, self.predictor.fixed_size
        size, tiling = (image.shape[0], image.shape[1]), self.tiling
        view, resizing = view_of(self.head.task.name), self.resizing
        whole = view(image, self.image_size, stride, fixed_size, resizing)
        if tiling is None or max(size) <= tiling.side:
            return [whole]
        height, width = tiling.tile_size(size)
        placement = place((height, width), self.image_size, stride, fixed_size)
        tiles = [
            View(image[top : top + height, left : left + width], placement, (top, left), resizing)
            for top, left in tiling.corners(size)
        ]
        return [*tiles, whole]

    def predict(self, views: Sequence[View]) -> list[Any]:
        """Return what may count as found in each view, as `Head.finish` takes it.

        Views of one shape are a batch; so what is found in one depends on no other. With tiles, a
        batch has no more of them than `tiling` says.
        """
        rows: dict[int, Any] = {}
        for indices in self._batches(views):
            images = np.stack([views[index].pixels.transpose(2, 0, 1) for index in indices])
            rows.update(zip(indices, self._predict_batch(images), strict=True))
        return [rows[index] for index in range(len(views))]

    def _batches(self, views: Sequence[View]) -> Iterator[list[int]]:
        """Yield which views go through the network together."""
        shapes: dict[tuple[int, int], list[int]] = {}
        for index, view in enumerate(views):
            shapes.setdefault(view.placement.input_size, []).append(index)
        for indices in shapes.values():
            size = self.tiling.batch_size if self.tiling else len(indices)
            for start in range(0, len(indices), size):
                yield indices[start : start + size]

    def _predict_batch(self, images: np.ndarray) -> list[Any]:
        with self._network, autograd.no_grad():
            raw = self.predictor(network_input(self.predictor, images, self.device))
            return self.predictor.decode_above(raw, self.suppression.confidence_threshold)

    def finish(self, views: Sequence[View], rows: Sequence[Any]) -> Any:
        """Return what is found in an image, in its pixels, from the rows of its views."""
        return self.join(views, list(map(self.finish_view, views, rows)))

    def finish_view(self, view: View, rows: Any) -> Any:
        """Return what is found in one view, in pixels of its part of the image."""
        return self.head.finish(rows, view.placement, self.suppression)

    def join(self, views: Sequence[View], found: Sequence[Any]) -> Any:
        """Return what is found in an image, in its pixels, from what is found in its views."""
        if len(views) == 1:
            return found[0]
        regions_xyxy = np.array([view.region_xyxy for view in views])
        return join_views(found, regions_xyxy, self.suppression)

    def detect(self, images: Sequence[np.ndarray]) -> list[Any]:
        """Return what is found in each image (H, W, 3) uint8 RGB."""
        views = [self.views(image) for image in images]
        rows = iter(self.predict([view for image in views for view in image]))
        return [self.finish(image, [next(rows) for _ in image]) for image in views]

    def detect_in_batches(
        self, image: np.ndarray, batch_size: int, advance: Callable[[], None]
    ) -> Any:
        """Return what is found in one image; raw rows are kept of only one batch of its views.

        advance: called after each batch.
        """
        views, found = self.views(image), list[Any]()
        for start in range(0, len(views), batch_size):
            batch = views[start : start + batch_size]
            found += map(self.finish_view, batch, self.predict(batch))
            advance()
        return self.join(views, found)
