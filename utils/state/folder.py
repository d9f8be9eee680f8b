"""The folder of a new run."""

from __future__ import annotations

import contextlib
from pathlib import Path

from utils.errors import UserError


def unwritable_text(project: Path, name: str, place: Path, error: OSError) -> str:
    """Return what to do where the folder of a run cannot be made; place is where that failed."""
    return (
        f"--project {project} --name {name}: no folder can be made in {place.absolute()}: "
        f"{error.strerror}; give a --project that can be written to, or a shorter --name"
    )


def create_run_folder(project: Path, name: str, exist_ok: bool) -> Path:
    """Make project/name, or project/name2, name3, ... if it exists and exist_ok is not set."""
    try:
        project.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(str(number) for number in range(2, 10_000))):
            folder = project / f"{name}{suffix}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir(exist_ok=exist_ok)
                return folder
    except OSError as error:
        raise UserError(unwritable_text(project, name, project, error)) from error
    raise UserError(f"--project {project} is full of runs called {name}; give another --name")
