"""The location of the project; paths to files it ships start here."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
STAMP = "duet-environment.json"  # marks a complete environment made by `make setup`


def script(name: str) -> list[str]:
    """Return the arguments after `python` that run one of our scripts, as a user types them."""
    path = PROJECT / f"{name}.py"  # in a checkout; an installed package only has `duet`
    return [str(from_here(path))] if path.exists() else ["-m", "duet", name]


def from_here(path: Path) -> Path:
    """Make a path inside the working folder relative, as a user would type it."""
    path, here = Path(os.path.abspath(path)), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
