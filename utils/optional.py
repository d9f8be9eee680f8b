"""Packages that some features need and the rest does without, imported where they are used."""

from __future__ import annotations

import importlib
from types import ModuleType

from utils.errors import UserError

# The command that installs each; the pins are those of requirements/optional.in. trackers asks for
# another OpenCV, which would overwrite ours.
INSTALL = {
    "av": "pip install av==17.1.0",
    "mss": "pip install mss==10.2.0",
    "pandas": "pip install pandas==2.3.3",
    "supervision": "pip install supervision==0.31.2",
    "trackers": "pip install --no-deps -r requirements/optional.in",
}


def import_optional(module: str, what_for: str) -> ModuleType:
    """Import an optional package, or a module of one.

    Args:
        module: its name: "av", "trackers".
        what_for: what needs it, the first words of the message: "--track", "a video".

    Raises:
        UserError: it is absent, or lacks what it needs; the text has the command that installs it.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        reason = "" if error.name == package else f" ({error})"
        raise UserError(f"{what_for} needs {package}{reason}: {INSTALL[package]}") from error
