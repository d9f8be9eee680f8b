"""The deliberately wrong backend: one plausible mistake per entry, made from the right backend."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.conformance.judging import Backend

# Where the contract's classes are found: the methods of an optimizer are those of SGD's result.
MODULES = {"Tensor": ("tensor", None), "Optimizer": ("optim", "SGD")}
# The backend and its right function or class -> the wrong one.
Build = Callable[[Backend, Any], Any]


class Wrong(NamedTuple):
    """A mistake in what the contract calls `name`."""

    name: str
    mistake: str
    build: Build

    def applied(self, b: Backend) -> Backend:
        """Return a right backend with this one mistake."""
        owner, attribute = self.name.split(".")
        module, replaced = MODULES.get(owner, (owner, None))
        replaced = replaced or attribute
        right = getattr(getattr(b, module), replaced)
        return b.replaced(module, replaced, self.build(b, right))


WRONG: list[Wrong] = []


def register(*entries: tuple[str, str, Build]) -> None:
    WRONG.extend(Wrong(*entry) for entry in entries)


def returning(value: Any) -> Build:
    return lambda b, right: lambda *args, **kwargs: value


def without_gradient(b: Backend, right: Any) -> Any:
    return lambda *args, **kwargs: right(*args, **kwargs).detach()


def promoted(b: Backend, right: Any) -> Any:
    """Make float64 of the result, as older NumPy did of 0-d arrays."""
    return lambda *args, **kwargs: b.ops.cast(right(*args, **kwargs), "float64")


def with_arguments(**changes: Any) -> Build:
    """Call the right function with some arguments replaced, whatever is given for them."""

    def build(b: Backend, right: Any) -> Any:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(right).bind(*args, **kwargs).arguments
            return right(**{**given, **changes})

        return wrong

    return build
