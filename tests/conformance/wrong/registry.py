"""The deliberately wrong backend: one plausible mistake per entry, made from the right backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.conformance.judging import Backend

# Where the contract's classes are found: the methods of an optimizer are those of SGD's result.
MODULES = {"Tensor": ("tensor", None), "Optimizer": ("optim", "SGD")}


class Wrong(NamedTuple):
    """A mistake in what the contract calls `name`; `build` makes the function or class."""

    name: str
    mistake: str
    build: Callable[[Backend], Any]

    def applied(self, right: Backend) -> Backend:
        """Return the right backend with this one mistake."""
        owner, attribute = self.name.split(".")
        module, replaced = MODULES.get(owner, (owner, None))
        return right.replaced(module, replaced or attribute, self.build(right))


WRONG: list[Wrong] = []


def register(entries: Iterable[tuple[str, str, Callable[[Backend], Any]]]) -> None:
    WRONG.extend(Wrong(*entry) for entry in entries)
