"""Match a dataset's classes to those of weights: by name, or by number where one has no names."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.utils.data.sources.samples import Sample, SampleTable, table_of
from duet.utils.errors import UserError, brief
from duet.utils.text import count

UNKNOWN = -1


class ScoredClasses(NamedTuple):
    """The classes in which a model is scored.

    Attributes:
        names: names by number.
        in_model: (C,) int64, the number of each of the dataset's classes.
    """

    names: tuple[str, ...]
    in_model: np.ndarray

    @property
    def are_of_data(self) -> bool:
        """Whether the dataset has the same classes with the same numbers."""
        return np.array_equal(self.in_model, np.arange(len(self.names)))

    def of_model(self, ids: Sequence[int]) -> list[int | None]:
        """Return values of the dataset's classes for the model's; None where it has no class."""
        found: list[int | None] = [None] * len(self.names)
        for index, value in zip(self.in_model.tolist(), ids, strict=True):
            found[index] = value
        return found

    def renumbered(self, samples: Sequence[Sample]) -> SampleTable:
        """Return samples of the dataset with the model's class numbers."""
        table = table_of(samples)
        return dataclasses.replace(table, class_index=self.in_model[table.class_index])


def are_placeholders(class_names: Sequence[str]) -> bool:
    """Return whether all names only number the classes: class0, as here, or 0; or there is none."""
    return all(name in (f"class{index}", str(index)) for index, name in enumerate(class_names))


def classes_in_model(
    class_names: Sequence[str], known: Sequence[str], num_known: int
) -> np.ndarray:
    """Return the model's number of each of a dataset's classes, (C,) int64; UNKNOWN for none.

    Args:
        known: the weights' first class names, of `num_known` classes; () if they have none.
    """
    places = {name: index for index, name in reversed(list(enumerate(known)))}
    in_model = np.array([places.get(name, UNKNOWN) for name in class_names], np.int64)
    is_unnamed = are_placeholders(known) or are_placeholders(class_names)
    if UNKNOWN in in_model and is_unnamed and len(class_names) == num_known:
        return np.arange(num_known)
    return in_model


def scored_classes(
    data: str, class_names: Sequence[str], weights: str, known: Sequence[str], num_known: int
) -> ScoredClasses:
    """Return the classes in which a model is scored on a dataset.

    They are the dataset's if the numbers agree, else the model's. All of the dataset's must be
    among the model's.

    Args:
        data, weights: their names in messages.
        known: as for `classes_in_model`.

    Raises:
        UserError: names the dataset's classes that the model does not know.
    """
    in_model = classes_in_model(class_names, known, num_known)
    unknown = [name for name, index in zip(class_names, in_model, strict=True) if index == UNKNOWN]
    if unknown and are_placeholders(known):
        raise UserError(
            f"{data} has {count(len(class_names), 'class', 'classes')}, {weights} has {num_known} "
            "without names; the numbers must be equal; use matching weights"
        )
    if unknown:
        raise UserError(
            f"{data} has classes that {weights} does not know: {brief(unknown)}; it knows "
            f"{brief(list(known))}; rename classes in a dataset YAML, as in merge: "
            f"{{{brief(unknown[0])}: {brief(known[0])}}}, or use weights that were trained on them"
        )
    names = tuple(class_names)
    if not np.array_equal(in_model, np.arange(num_known)):
        names = tuple(known)
    return ScoredClasses(names, in_model)
