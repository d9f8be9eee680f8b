"""Where the project lies; every path to a file that it ships starts here."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]


def script(name: str) -> list[str]:
    """Return the words after the interpreter that run a script of ours, as a user types them."""
    path = PROJECT / f"{name}.py"  # of a checkout; an installed package has only `duet`
    return [str(from_here(path))] if path.exists() else ["-m", "duet", name]


def from_here(path: Path) -> Path:
    """Return a path inside the working folder as a relative one, as a user would type it."""
    path, here = Path(os.path.abspath(path)), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
