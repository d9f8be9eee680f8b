"""The folder of a new run."""

from __future__ import annotations

import contextlib
from pathlib import Path

from utils.errors import UserError


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
        raise UserError(f"--project {project} --name {name}: {error.strerror}") from error
    raise UserError(f"--project {project} is full of runs called {name}; give another --name")
