"""Collects what all ranks find in a validation, and passes it on as a single process would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from utils.processes.world import AllGather, World
from utils.ragged import Ragged


class FoundImage(NamedTuple):
    """What is found in one image."""

    batch_index: int
    image_index: int  # its place among the samples
    found: Any  # a NamedTuple of arrays and `Ragged`, all with as many rows: of `Head.finish`


class Collector:
    """Collects what a rank finds in its shards, and passes on each image of all ranks once.

    Args:
        nothing: what is found in an image without anything, for its dtypes and shapes.
        world: the ranks.
        receive: takes the images: each when it was found with one rank, and all of them at the
            end, in the order of a single process, with several.
    """

    def __init__(self, nothing: Any, world: World, receive: Callable[[FoundImage], None]) -> None:
        self._nothing, self._all_gather, self._receive = nothing, world.all_gather, receive
        self._alone = world.process.world_size == 1
        self._found: list[FoundImage] = []
        self._losses: list[np.ndarray] = []

    def add_image(self, image: FoundImage) -> None:
        """Take an image of this rank's shard."""
        if self._alone:
            self._receive(image)
        else:
            self._found.append(image)

    def end_batch(self, losses: np.ndarray) -> None:
        """Take this rank's part of a batch's losses, float64; once for each batch."""
        self._losses.append(losses)

    def finish(self) -> np.ndarray:
        """Return the mean losses of all batches; by then, all images are passed on."""
        losses = np.array(self._losses)
        if not self._alone:
            losses = np.sum(self._all_gather(losses), axis=0)
            images = gather_images(self._found, self._nothing, self._all_gather)
            for image in sorted(images, key=lambda image: image.batch_index):
                self._receive(image)  # stable: the images of a batch rank by rank
        return losses.mean(axis=0)


def gather_images(
    images: Sequence[FoundImage], nothing: Any, all_gather: AllGather
) -> list[FoundImage]:
    """Return the images of all ranks, rank by rank.

    nothing: what is found in an image without anything.
    """
    counts = [len(_arrays(image.found[0])[-1]) for image in images]
    places = [(*image[:2], count) for image, count in zip(images, counts, strict=True)]
    fields = zip(nothing, *(image.found for image in images), strict=True)
    sent = [np.array(places, np.int64).reshape(len(places), 3)]
    for field in fields:
        sent += [_sent(np.concatenate(parts)) for parts in zip(*map(_arrays, field), strict=True)]
    found: list[FoundImage] = []
    for own_places, *arrays in zip(*map(all_gather, sent), strict=True):
        counts = own_places[:, 2].tolist()
        rows = zip(*_split(iter(arrays), nothing, counts), strict=True)
        for (batch, image, _), of_image in zip(own_places.tolist(), rows, strict=True):
            found.append(FoundImage(batch, image, type(nothing)(*of_image)))
    return found


def _arrays(field: np.ndarray | Ragged) -> tuple[np.ndarray, ...]:
    """Return the arrays of a field; the last one has an item for each row."""
    return tuple(field) if isinstance(field, Ragged) else (field,)


def _sent(array: np.ndarray) -> np.ndarray:
    """Return an array as ranks exchange it: uint32 as rows of four bytes."""
    return array.view(np.uint8).reshape(-1, 4) if array.dtype == np.uint32 else array


def _split(arrays: Any, nothing: Any, counts: Sequence[int]) -> list[list[Any]]:
    """Return each field of what a rank found, as groups of so many rows.

    arrays: yields those that the rank sent, field by field.
    """
    groups: list[list[Any]] = []
    for like in nothing:
        received = [
            np.ascontiguousarray(next(arrays)).view(own.dtype).reshape(-1, *own.shape[1:])
            for own in _arrays(like)
        ]
        if isinstance(like, Ragged):
            groups.append(Ragged(*received).split(counts))
        else:
            ends = np.cumsum(counts, dtype=np.int64)[:-1]
            groups.append(np.split(received[0], ends)[: len(counts)])
    return groups
