"""Collect the validation results of all ranks in the order of a single process."""

import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from duet.utils.geometry.detections import Found, Ragged
from duet.utils.processes.world import AllGather, World


class FoundImage(NamedTuple):
    batch_index: int
    image_index: int  # sample index
    found: Found


class Collector:
    """Collects a rank's results from its shards, and passes on each image of all ranks once.

    Args:
        nothing: an empty result, for its dtypes and shapes.
        world: the ranks.
        receive: called with each image: immediately with one rank; with several, at the end, in
            the order of a single process.
    """

    def __init__(self, nothing: Found, world: World, receive: Callable[[FoundImage], None]) -> None:
        self._nothing, self._all_gather, self._receive = nothing, world.all_gather, receive
        self._alone = world.process.world_size == 1
        self._found: list[FoundImage] = []
        self._losses: list[np.ndarray] = []

    def add_image(self, image: FoundImage) -> None:
        if self._alone:
            self._receive(image)
        else:
            self._found.append(image)

    def end_batch(self, losses: np.ndarray) -> None:
        """Add this rank's part of a batch's losses, float64; once per batch."""
        self._losses.append(losses)

    def finish(self) -> np.ndarray:
        """Pass on any remaining images; return the mean losses of all batches."""
        losses = np.array(self._losses)
        if not self._alone:
            losses = np.sum(self._all_gather(losses), axis=0)
            images = gather_images(self._found, self._nothing, self._all_gather)
            for image in sorted(images, key=lambda image: image.batch_index):
                self._receive(image)  # stable sort: within a batch by rank
        return losses.mean(axis=0)


def gather_images(
    images: Sequence[FoundImage], nothing: Found, all_gather: AllGather
) -> list[FoundImage]:
    """Return the images of all ranks, rank by rank.

    nothing: an empty result.
    """
    places = [(*image[:2], len(_arrays(image.found[0])[-1])) for image in images]
    fields = zip(nothing, *(image.found for image in images), strict=True)
    sent, found = io.BytesIO(), []
    np.savez(
        sent,
        np.array(places, np.int64).reshape(len(places), 3),
        *(np.concatenate(x) for field in fields for x in zip(*map(_arrays, field), strict=True)),
    )
    for data in all_gather(np.frombuffer(sent.getbuffer(), np.uint8)):
        with np.load(io.BytesIO(data.tobytes()), allow_pickle=False) as file:
            own_places, *arrays = (file[name] for name in file.files)
        counts, received = own_places[:, 2], iter(arrays)
        rows = [
            Ragged(next(received), next(received)).split(counts.tolist())
            if isinstance(like, Ragged)
            else np.split(next(received), np.cumsum(counts)[:-1])[: len(counts)]
            for like in nothing
        ]
        for (batch, image, _), *of_image in zip(own_places.tolist(), *rows, strict=True):
            found.append(FoundImage(batch, image, type(nothing)(*of_image)))
    return found


def _arrays(field: np.ndarray | Ragged) -> tuple[np.ndarray, ...]:
    """Return the arrays of a field; the last one has an item per row."""
    return tuple(field) if isinstance(field, Ragged) else (field,)
