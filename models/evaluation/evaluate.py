"""Detect in every image of a split and compare the detections with its labels.

`loop.py` does it after each epoch, `validation.py` for val.py.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from duet.backend import autograd, ops
from duet.backend.contract import Tensor
from duet.models.heads.base import Candidates, Evaluator, Loss, Result, Sink
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictors import Predictor, network_input
from duet.utils.data.image.letterbox import View
from duet.utils.data.loading.batch import Batch, Targets
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.samples import Sample, read_ahead
from duet.utils.evaluation.collector import Collector, FoundImage
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.geometry.detections import GroundTruth
from duet.utils.geometry.tiling import Tiling
from duet.utils.processes import watchdog
from duet.utils.processes.world import ALONE, World
from duet.utils.progress import Progress

DEFAULT_SUPPRESSION = SuppressionSettings()


class Validation(NamedTuple):
    result: Result  # from the head's evaluator; read by `Head.metrics`
    losses: np.ndarray  # float64 means in `Head.loss_names` order; zeros without a loss


@dataclass(frozen=True)
class Evaluation:
    """A model, the images that it is evaluated on, and how.

    Each rank processes its shard; all return the same result as a single process.

    Attributes:
        model: in evaluation mode; with a loss, a single model without augmentation.
        samples: the split's samples.
        suppression: settings for filtering predictions.
        loss: compute losses too, as in training; the ranks' losses add up to a batch's mean.
        sinks: receive what the evaluator receives, by sample index, on rank 0.
        objects_of: returns the objects of a sample by index, in image pixels; None to use labels.
        channels_last: layout of the feature maps; None for the faster one on the device.
        at_a_time: images per forward pass; 0: the whole batch.
    """

    model: Predictor
    samples: Sequence[Sample]
    class_names: Sequence[str]
    device: str
    suppression: SuppressionSettings = DEFAULT_SUPPRESSION
    loss: Loss | None = None
    sinks: Sequence[Sink] = ()
    objects_of: Callable[[int], GroundTruth] | None = None
    channels_last: bool | None = None
    at_a_time: int = 0

    def run(self, loader: ValLoader, after_batch: Callable[[], None] | None = None) -> Validation:
        """Evaluate on the loader's batches of the samples.

        after_batch: called after every batch on all ranks; an exception ends the evaluation.
        """
        head, evaluator, collector = self.model.head, *self._begin(loader.world)

        def finish(batch_index: int, batch: Batch, predictions: Sequence[Candidates]) -> None:
            images = head.finish_images(predictions, batch.letterboxes, self.suppression)
            for index, found in zip(batch.sample_indices.tolist(), images, strict=True):
                collector.add_image(FoundImage(batch_index, index, found))

        finish_last: Callable[[], object] = list  # no-op before the first batch
        raw: Sequence[Tensor] = ()
        with Progress(len(loader), "validating", "batches") as bar, autograd.no_grad():
            for batch_index, batch in enumerate(loader):
                # The loss is collective: ranks without images take part too.
                if len(batch.images) or self.loss is not None:
                    raw = self._forward(batch.images)
                read_losses = self._losses_later(raw, batch.targets)
                # Overlaps with the queued work of the framework, except for PyTorch on a CPU.
                finish_last()
                predictions = []
                if len(batch.images):
                    predictions = self.model.decode_above(raw, self.suppression)
                collector.end_batch(read_losses())
                finish_last = partial(finish, batch_index, batch, predictions)
                bar.update()
                watchdog.progress()
                if after_batch is not None:
                    after_batch()
            finish_last()
        losses = collector.finish()  # the evaluator is complete only after this
        return Validation(evaluator.result(), losses)

    def run_tiled(self, tiling: Tiling, image_size: int, world: World = ALONE) -> Validation:
        """Evaluate on tiles of every image at full size, without a loss.

        The next image is read ahead, so two are in memory.

        image_size: long side of the network input for a tile.
        """
        detector = ImageDetector(self.model, self.device, image_size, self.suppression, tiling)
        evaluator, collector = self._begin(world)
        shard = world.process.shard(range(len(self.samples)))
        images = read_ahead([self.samples[index] for index in shard])

        def rows_of(views: Sequence[View]) -> Iterator[Candidates]:
            for start in range(0, len(views), tiling.batch_size):  # keeps one batch's rows only
                yield from detector.predict(views[start : start + tiling.batch_size])
                watchdog.progress()

        with Progress(len(shard), "validating", "images") as bar, closing(images):
            for index, image in zip(shard, images, strict=True):
                views = detector.views(image)
                collector.add_image(FoundImage(0, index, detector.finish(views, rows_of(views))))
                bar.update()
        collector.end_batch(np.zeros(len(self.model.head.loss_names)))
        losses = collector.finish()
        return Validation(evaluator.result(), losses)

    def _begin(self, world: World) -> tuple[Evaluator, Collector]:
        """Return an evaluator, and a collector that passes images on to it and to the sinks."""
        head = self.model.head
        evaluator, items = head.make_evaluator(self.class_names), head.task.items.load()
        objects_of = self.objects_of or (lambda index: items.ground_truth(self.samples[index]))
        takers = (evaluator, *self.sinks) if world.process.is_main else (evaluator,)

        def receive(image: FoundImage) -> None:
            objects = objects_of(image.image_index)
            for taker in takers:
                taker.add(image.image_index, image.found, objects)

        return evaluator, Collector(head.nothing_found, world, receive)

    def _forward(self, images: np.ndarray) -> Sequence[Tensor]:
        """Run the model on a batch, with at most `at_a_time` images per pass."""
        batch = network_input(self.model, images, self.device, self.channels_last)
        if not 0 < self.at_a_time < len(images):
            return self.model(batch)
        starts = range(0, len(images), self.at_a_time)
        found = [self.model(batch[start : start + self.at_a_time]) for start in starts]
        return tuple(ops.cat(maps) for maps in zip(*found, strict=True))

    def _losses_later(self, raw: Sequence[Tensor], targets: Targets) -> Callable[[], np.ndarray]:
        """Return a function that reads a batch's losses as float64; zeros without a loss."""
        if self.loss is None:
            return partial(np.zeros, len(self.model.head.loss_names))
        read = ops.to_numpy_later(ops.stack(list(self.loss(raw, targets).by_name.values())))
        return lambda: read().astype(np.float64)
