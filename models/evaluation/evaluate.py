"""Detect in every image of a split and compare the detections with its labels.

`loop.py` calls it after each epoch, `validation.py` for val.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from duet.backend import autograd, ops
from duet.models.heads.base import Evaluator, Head, Loss, Sink
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictors import HalfPrecision, Predictor, network_input
from duet.utils.data.image.view import View
from duet.utils.data.loading.batch import Batch, Targets
from duet.utils.data.loading.items import items_of
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.reading import read_ahead
from duet.utils.data.sources.samples import Sample
from duet.utils.evaluation.collector import Collector, FoundImage
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.geometry.detections import GroundTruth
from duet.utils.processes import watchdog
from duet.utils.processes.world import ALONE, World
from duet.utils.progress import Progress

DEFAULT_SUPPRESSION = SuppressionSettings()


class Validation(NamedTuple):
    """Result of `evaluate`."""

    result: Any  # from the head's evaluator; read by `Head.metrics`
    losses: np.ndarray  # float64 means in `Head.loss_names` order; zeros without a loss


def evaluate(
    model: Predictor,
    loader: ValLoader,
    samples: Sequence[Sample],
    class_names: Sequence[str],
    device: str,
    suppression: SuppressionSettings = DEFAULT_SUPPRESSION,
    loss: Loss | None = None,
    sinks: Sequence[Sink] = (),
    objects_of: Callable[[int], GroundTruth] | None = None,
    channels_last: bool | None = None,
    at_a_time: int = 0,
    after_batch: Callable[[], None] | None = None,
) -> Validation:
    """Detect in every image of the loader and compare with its labels.

    Each rank processes its shard of every batch; all return the same result as a single process.

    Args:
        model: in evaluation mode; with a loss, a single model without augmentation.
        samples: the loader's samples.
        suppression: settings for filtering predictions.
        loss: compute losses too, as in training; the ranks' losses add up to a batch's mean.
        sinks: receive what the evaluator receives, by sample index, on rank 0.
        objects_of: returns the objects of a sample by index, in image pixels; None to use labels.
        channels_last: layout of the feature maps; None for the faster one on the device.
        at_a_time: images per forward pass; 0: the whole batch.
        after_batch: called after every batch on all ranks; an exception ends the validation.
    """
    head, evaluator = model.head, model.head.make_evaluator(class_names)
    receive = _receiver(head, evaluator, sinks, samples, objects_of, loader.world)
    collector = Collector(head.nothing_found, loader.world, receive)

    def finish(batch_index: int, batch: Batch, predictions: Sequence[Any]) -> None:
        images = head.finish_images(predictions, batch.letterboxes, suppression)
        for index, found in zip(batch.sample_indices.tolist(), images, strict=True):
            collector.add_image(FoundImage(batch_index, index, found))

    finish_last: Callable[[], object] = list  # no-op before the first batch
    raw: Any = ()
    with Progress(len(loader), "validating", "batches") as bar, autograd.no_grad():
        for batch_index, batch in enumerate(loader):
            # The loss is collective: ranks without images take part too.
            if len(batch.images) or loss is not None:
                images = network_input(model, batch.images, device, channels_last)
                raw = in_pieces(model, images, at_a_time)
            read_losses = _losses_later(head, loss, raw, batch.targets)
            # Overlaps with the queued work of the framework, except for PyTorch on a CPU.
            finish_last()
            predictions = model.decode_above(raw, suppression) if len(batch.images) else []
            collector.end_batch(read_losses())
            finish_last = partial(finish, batch_index, batch, predictions)
            bar.update()
            watchdog.progress()
            if after_batch is not None:
                after_batch()
        finish_last()
    losses = collector.finish()  # the evaluator is complete only after this
    return Validation(evaluator.result(), losses)


def in_precision(model: Predictor, device: str, dtype: str, channels_last: bool) -> Predictor:
    """Wrap a float32 model to compute in a dtype; "float32" returns it unchanged."""
    return model if dtype == "float32" else HalfPrecision(model, device, dtype, channels_last)


def evaluate_tiled(
    detector: ImageDetector,
    samples: Sequence[Sample],
    class_names: Sequence[str],
    world: World = ALONE,
    sinks: Sequence[Sink] = (),
    objects_of: Callable[[int], GroundTruth] | None = None,
) -> Validation:
    """Detect in tiles of every image at full size, and compare with its labels.

    Each rank processes its shard of the images; otherwise like `evaluate` without a loss.
    The next image is read ahead, so two are in memory.

    Args:
        detector: detector with tiling enabled.
    """
    assert detector.tiling is not None
    head = detector.predictor.head
    evaluator = head.make_evaluator(class_names)
    receive = _receiver(head, evaluator, sinks, samples, objects_of, world)
    collector = Collector(head.nothing_found, world, receive)
    shard = world.process.shard(range(len(samples)))
    images = read_ahead([samples[index] for index in shard])

    def rows_of(views: Sequence[View], at_a_time: int) -> Iterator[Any]:
        for start in range(0, len(views), at_a_time):  # keeps the rows of one batch only
            yield from detector.predict(views[start : start + at_a_time])
            watchdog.progress()

    with Progress(len(shard), "validating", "images") as bar, closing(images):
        for index, image in zip(shard, images, strict=True):
            views = detector.views(image)
            found = detector.finish(views, rows_of(views, detector.tiling.batch_size))
            collector.add_image(FoundImage(0, index, found))
            bar.update()
    collector.end_batch(np.zeros(len(head.loss_names)))
    losses = collector.finish()
    return Validation(evaluator.result(), losses)


def in_pieces(model: Predictor, images: Any, at_a_time: int) -> Any:
    """Run the model on a batch, with at most `at_a_time` images per forward pass."""
    if not 0 < at_a_time < images.shape[0]:
        return model(images)
    starts = range(0, images.shape[0], at_a_time)
    found = [model(images[start : start + at_a_time]) for start in starts]
    return tuple(ops.cat(maps) for maps in zip(*found, strict=True))


def _losses_later(
    head: Head, loss: Loss | None, raw: Any, targets: Targets
) -> Callable[[], np.ndarray]:
    """Return a function that reads a batch's losses as float64; zeros without a loss."""
    if loss is None:
        return partial(np.zeros, len(head.loss_names))
    read = ops.to_numpy_later(ops.stack(list(loss(raw, targets).by_name.values())))
    return lambda: read().astype(np.float64)


def _receiver(
    head: Head,
    evaluator: Evaluator,
    sinks: Sequence[Sink],
    samples: Sequence[Sample],
    objects_of: Callable[[int], GroundTruth] | None,
    world: World,
) -> Callable[[FoundImage], None]:
    """Return a function that passes each image and its objects to evaluator and sinks."""
    items = items_of(head.task.name)
    takers = (evaluator, *sinks) if world.process.is_main else (evaluator,)

    def receive(image: FoundImage) -> None:
        index = image.image_index
        objects = objects_of(index) if objects_of else items.ground_truth(samples[index])
        for taker in takers:
            taker.add(index, image.found, objects)

    return receive
