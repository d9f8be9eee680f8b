"""Wings: parts that the core does without. A module of the core names them in a tuple WINGS.

A wing whose folder was deleted takes only its own feature along.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from types import ModuleType

from duet.utils.errors import UserError


def load_wings(names: Sequence[str]) -> list[ModuleType]:
    """Import the modules that are there; those of deleted folders are left out."""
    return [importlib.import_module(name) for name in names if _is_there(name)]


def require_wing(names: Sequence[str], what_for: str) -> ModuleType:
    """Import the first of the modules that is there.

    Raises:
        UserError: none is; the message begins with what needs it.
    """
    for wing in load_wings(names):
        return wing
    module = names[0].removeprefix("duet.") if names else "a wing."
    place = module.rpartition(".")[0].replace(".", "/")
    raise UserError(f"{what_for} needs {place}, which this copy of Duet lacks; get a whole copy")


def _is_there(name: str) -> bool:
    parent = name.rpartition(".")[0]
    return (not parent or _is_there(parent)) and importlib.util.find_spec(name) is not None
