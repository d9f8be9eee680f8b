"""Detection in images of any size: views, a predictor, and post-processing on the host.

`views` and `finish` run on the host in any thread; `predict` admits `lanes` threads at a time and
blocks others.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from duet.backend import autograd
from duet.models.heads.base import Candidates, Head
from duet.models.inference.heatmap import heatmap_of
from duet.models.inference.predictors import Predictor, network_input
from duet.utils.data.image.letterbox import View, place
from duet.utils.evaluation.joining import join_views
from duet.utils.geometry.detections import Found, SuppressionSettings
from duet.utils.geometry.tiling import Tiling


@dataclass(eq=False, repr=False)
class ImageDetector:
    """Predictor on a device for images of any size.

    Attributes:
        image_size: long side of the network input for an image or tile; ignored by predictors of a
            fixed size.
        suppression: settings for filtering predictions.
        tiling: how to cut images larger than a tile; None to disable.
        lanes: number of threads that may run the network at once; others wait.
        class_names: names of all classes, for results.
        visualized: layer of the heat maps; None: no heat maps.
    """

    predictor: Predictor
    device: str
    image_size: int
    suppression: SuppressionSettings
    tiling: Tiling | None = None
    lanes: int = 1
    class_names: tuple[str, ...] = ()
    visualized: int | None = None

    def __post_init__(self) -> None:
        self._network = threading.Semaphore(self.lanes)

    @property
    def head(self) -> Head:
        return self.predictor.head

    def views(self, image: np.ndarray) -> list[View]:
        """Return the network's views of an image (H, W, 3) uint8 RGB.

        These are the tiles, if the image is larger than one, then the whole image, which shows
        objects larger than a tile. Tiles come first because their boxes are more precise and NMS
        keeps the first of equal scores. They are views of the array: do not modify it until
        `predict` is done.
        """
        stride, fixed_size = self.predictor.stride, self.predictor.fixed_size
        size, tiling = (image.shape[0], image.shape[1]), self.tiling
        whole = self.head.task.view.load()(image, self.image_size, stride, fixed_size)
        if tiling is None or max(size) <= tiling.side:
            return [whole]
        height, width = tiling.tile_size(size)
        placement = place((height, width), self.image_size, stride, fixed_size)
        tiles = [
            View(image[top : top + height, left : left + width], placement, (top, left))
            for top, left in tiling.corners(size)
        ]
        return [*tiles, whole]

    def predict(
        self, views: Sequence[View], settings: SuppressionSettings | None = None
    ) -> list[Candidates]:
        """Return the candidates in each view, as input for `Head.finish`.

        Views of the same shape form a batch, so results do not depend on other views. With tiles,
        batches are limited by `tiling`.

        Args:
            settings: settings for filtering; None for the detector's.
        """
        settings = settings or self.suppression
        rows: dict[int, Candidates] = {}
        for indices in self._batches(views):
            images = np.stack([views[index].pixels.transpose(2, 0, 1) for index in indices])
            rows.update(zip(indices, self._predict_batch(images, settings), strict=True))
        return [rows[index] for index in range(len(views))]

    def _batches(self, views: Sequence[View]) -> Iterator[list[int]]:
        shapes: dict[tuple[int, int], list[int]] = {}
        for index, view in enumerate(views):
            shapes.setdefault(view.placement.input_size, []).append(index)
        for indices in shapes.values():
            size = self.tiling.batch_size if self.tiling else len(indices)
            for start in range(0, len(indices), size):
                yield indices[start : start + size]

    def _predict_batch(self, images: np.ndarray, settings: SuppressionSettings) -> list[Candidates]:
        with self._network, autograd.no_grad():
            raw = self.predictor(network_input(self.predictor, images, self.device))
            return self.predictor.decode_above(raw, settings)

    def finish(self, views: Sequence[View], rows: Iterable[Candidates]) -> Found:
        """Return an image's detections in its pixels, from the rows of its views, one by one."""
        found: list[Any] = [
            self.head.finish(one, view.placement, self.suppression)
            for view, one in zip(views, rows, strict=True)
        ]
        if len(views) == 1:
            return found[0]
        regions_xyxy = np.array([view.region_xyxy for view in views])
        return join_views(found, regions_xyxy, self.suppression)

    def heatmap(self, image: np.ndarray) -> np.ndarray | None:
        """Return the heat map of an image (H, W, 3) uint8 RGB, (H, W); None without --visualize."""
        if self.visualized is None:
            return None
        view, size = self.views(image)[-1], (image.shape[0], image.shape[1])
        with self._network, autograd.no_grad():
            return heatmap_of(self.predictor, view, size, self.visualized, self.device)

    def detect(self, images: Sequence[np.ndarray]) -> list[Found]:
        """Return the detections in each image (H, W, 3) uint8 RGB."""
        views = [self.views(image) for image in images]
        return list(map(self.finish, views, self.predict_images(views)))

    def predict_images(self, images: Sequence[Sequence[View]]) -> list[list[Candidates]]:
        rows = iter(self.predict([view for views in images for view in views]))
        return [[next(rows) for _ in views] for views in images]
