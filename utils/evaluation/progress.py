"""What a validation has found so far, as arrays: to gather from all ranks, or to save.

Before: `Head.finish`, image by image. After: the head's evaluator; or a checkpoint, from which the
validation goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from backend.words import count
from utils.processes.world import World
from utils.ragged import Ragged, join_ragged


class FoundImage(NamedTuple):
    """What is found in one image."""

    batch_index: int
    image_index: int  # its place among the samples
    found: Any  # a NamedTuple of arrays and `Ragged`, all with as many rows: of `Head.finish`


class EvaluationProgress(NamedTuple):
    """All that is known after the first batches of a validation, N of them, over all ranks.

    `arrays` is what to save, and what to go on with on any number of ranks, with batches of the
    same size.
    """

    losses: np.ndarray  # (N, number of losses) float64; zeros without a loss
    images: np.ndarray  # (K, 3) int64: batch, place among the samples, number of rows
    rows: Any  # what is found in the images, one after the other, as that of a `FoundImage`

    @property
    def num_batches(self) -> int:
        """How many batches are done."""
        return len(self.losses)

    def found(self) -> list[FoundImage]:
        """Return the images in the order of a single process."""
        counts = self.images[:, 2].tolist()
        rows = zip(*(_split(field, counts) for field in self.rows), strict=True)
        return [
            FoundImage(batch, index, type(self.rows)(*found))
            for (batch, index, _), found in zip(self.images.tolist(), rows, strict=True)
        ]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by name: losses, images, and the fields of `rows`.

        Of dtypes that a checkpoint holds and ranks exchange: uint32 as rows of four bytes.
        """
        arrays = {"losses": self.losses, "images": self.images}
        for name, field in self.rows._asdict().items():
            if isinstance(field, Ragged):
                arrays |= {f"{name}.{part}": _to_store(x) for part, x in field._asdict().items()}
            else:
                arrays[name] = _to_store(field)
        return arrays

    def of_arrays(self, arrays: Mapping[str, np.ndarray]) -> EvaluationProgress:
        """Return another validation of the same task, of which `arrays` are."""
        rows = {
            name: Ragged(
                *(_stored(arrays[f"{name}.{part}"], x) for part, x in field._asdict().items())
            )
            if isinstance(field, Ragged)
            else _stored(arrays[name], field)
            for name, field in self.rows._asdict().items()
        }
        return EvaluationProgress(arrays["losses"], arrays["images"], type(self.rows)(**rows))


def make_progress(
    losses: np.ndarray, images: Sequence[FoundImage], like: Any
) -> EvaluationProgress:
    """Make it from the losses of N batches and their images, in the order of the batches.

    like: anything found in the same task, for the dtypes and shapes where there is no image.
    """
    nothing = type(like)(*(_taken(field, np.zeros(0, np.int64)) for field in like))
    found = [nothing, *(image.found for image in images)]
    rows = [_joined(field) for field in zip(*found, strict=True)]
    places = [(image.batch_index, image.image_index, num_rows(image.found)) for image in images]
    of_images = np.array(places, np.int64).reshape(len(places), 3)
    return EvaluationProgress(losses, of_images, type(like)(*rows))


def num_rows(found: Any) -> int:
    """Return how many things are found."""
    return _length(found[0])


def _to_store(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.uint32:
        return array
    return np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, 4)


def _stored(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return what `_to_store` made of an array of the dtype of another one."""
    if like.dtype != np.uint32:
        return array
    return np.ascontiguousarray(array).view(np.uint32).reshape(array.shape[:-1])


def _length(field: np.ndarray | Ragged) -> int:
    return field.num_rows if isinstance(field, Ragged) else len(field)


def _taken(field: np.ndarray | Ragged, rows: np.ndarray) -> np.ndarray | Ragged:
    return field.take(rows) if isinstance(field, Ragged) else field[rows]


def _split(field: np.ndarray | Ragged, counts: Sequence[int]) -> list[Any]:
    """Return groups of so many rows, one behind the other; views."""
    if isinstance(field, Ragged):
        return field.split(counts)
    return np.split(field, np.cumsum(counts, dtype=np.int64)[:-1])[: len(counts)]


def _joined(fields: Sequence[Any]) -> Any:
    return join_ragged(fields) if isinstance(fields[0], Ragged) else np.concatenate(fields)


def read_progress(
    arrays: Mapping[str, np.ndarray], nothing: EvaluationProgress, num_images: int
) -> EvaluationProgress:
    """Make it from its saved arrays, of a validation of so many images; ValueError if they do
    not fit.

    nothing: of a validation of the same task that has not begun.
    """
    wanted = nothing.arrays()
    if arrays.keys() != wanted.keys():
        raise ValueError(f"of a validation it has {sorted(arrays)}")
    for name, empty in wanted.items():
        array = arrays[name]
        if array.dtype != empty.dtype or (array.ndim, *array.shape[1:]) != (
            empty.ndim, *empty.shape[1:],
        ):  # fmt: skip
            raise ValueError(f"of a validation it has an array {array.dtype} {array.shape}")
    progress = nothing.of_arrays(arrays)
    batch_index, image_index, counts = progress.images.T
    if not (
        ((batch_index >= 0) & (batch_index < progress.num_batches)).all()
        and ((image_index >= 0) & (image_index < num_images)).all()
        and len(np.unique(image_index)) == len(image_index) >= progress.num_batches
        and ((counts >= 0) & (counts <= num_rows(progress.rows))).all()
        and {_length(field) for field in progress.rows} == {int(counts.sum())}
        and all(_is_whole(field) for field in progress.rows)
    ):
        raise ValueError("its validation in progress is none of these images")
    return progress


def _is_whole(field: np.ndarray | Ragged) -> bool:
    """Return whether the lengths of rows, if they have any, are those of their values."""
    if not isinstance(field, Ragged):
        return True
    lengths = field.lengths
    return bool((lengths >= 0).all() and (lengths <= len(field.values)).all()) and (
        int(lengths.sum()) == len(field.values)
    )


class Collector:
    """Collects what a rank finds in its shards, and passes on each image of all ranks once.

    Args:
        before: of an earlier part of the validation, over all ranks.
        world: the ranks.
        receive: takes the images: each when it was found with one rank, and all of them at the
            end, in the order of a single process, with several.
    """

    def __init__(
        self,
        before: EvaluationProgress,
        world: World,
        receive: Callable[[FoundImage], None],
    ):
        self._before, self._all_gather, self._receive = before, world.all_gather, receive
        self._alone = world.process.world_size == 1
        self._found: list[FoundImage] = []
        self._losses: list[np.ndarray] = []
        if self._alone:
            self._hand_on(before.found())

    def add_image(self, image: FoundImage) -> None:
        """Take an image of this rank's shard."""
        self._found.append(image)
        if self._alone:
            self._receive(image)

    def end_batch(self, losses: np.ndarray) -> None:
        """Take this rank's part of a batch's losses, float64; once for each batch."""
        self._losses.append(losses)

    def progress(self) -> EvaluationProgress:
        """Return what all ranks found; all of them call it, after the same number of batches."""
        return make_progress(*self._of_all(), self._before.rows)

    def finish(self) -> np.ndarray:
        """Return the mean losses of all batches; by then, all images are handed on."""
        losses, found = self._of_all()
        if not self._alone:
            self._hand_on(found)
        return losses.mean(axis=0)

    def _of_all(self) -> tuple[np.ndarray, list[FoundImage]]:
        """Return losses of all batches, and all images in the order of a single process."""
        losses = np.array(self._losses).reshape(len(self._losses), self._before.losses.shape[1])
        found = self._found
        if not self._alone:
            mine = make_progress(losses, found, self._before.rows)
            gathered = {name: self._all_gather(array) for name, array in mine.arrays().items()}
            of_ranks = zip(*gathered.values(), strict=True)
            ranks = [mine.of_arrays(dict(zip(gathered, x, strict=True))) for x in of_ranks]
            losses = np.sum([rank.losses for rank in ranks], axis=0)
            found = [image for rank in ranks for image in rank.found()]
            found.sort(key=lambda image: image.batch_index)  # stable: of a batch, rank by rank
        return np.concatenate([self._before.losses, losses]), [*self._before.found(), *found]

    def _hand_on(self, images: Iterable[FoundImage]) -> None:
        for image in images:
            self._receive(image)


class EvaluationSuspended(Exception):
    """A validation that was asked to stop between two batches; `progress` is of all ranks."""

    def __init__(self, progress: EvaluationProgress):
        super().__init__(
            f"validation stopped after {count(progress.num_batches, 'batch', 'batches')}"
        )
        self.progress = progress
