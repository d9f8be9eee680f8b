"""Wings: optional parts that a core module lists in a tuple WINGS.

Deleting the folder of a wing removes only its own feature.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from types import ModuleType

from duet.utils.errors import UserError


def load_wings(names: Sequence[str]) -> list[ModuleType]:
    """Import the modules whose folders exist."""
    return [importlib.import_module(name) for name in names if _exists(name)]


def require_wing(names: Sequence[str], what_for: str) -> ModuleType:
    """Import the first of the modules that exists.

    Raises:
        UserError: none exists; the message begins with what_for.
    """
    for wing in load_wings(names):
        return wing
    module = names[0].removeprefix("duet.") if names else "a wing."
    place = module.rpartition(".")[0].replace(".", "/")
    raise UserError(f"{what_for} needs {place}, which is missing; get a complete copy of Duet")


def _exists(name: str) -> bool:
    parent = name.rpartition(".")[0]
    return (not parent or _exists(parent)) and importlib.util.find_spec(name) is not None
