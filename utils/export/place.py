"""Where an exported file goes, and what may be there: an older one, which it replaces.

Before: the flags name weights and formats. After: `models/export/job.py` moves the file there.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from utils.errors import UserError
from utils.export.formats import Format


def exported_path(weights: str, row: Format) -> Path:
    """Return where the file of a format goes: beside the weights, under their name."""
    path = Path(weights)
    if path.name in ("", ".."):  # a folder of weights, seen from inside
        path = path.resolve()
    return path.parent / f"{path.stem}{row.ending}"


def require_free_place(path: Path, row: Format) -> None:
    """Raise UserError if a format's file would replace what export.py did not write."""
    is_folder = path.is_dir() and not path.is_symlink()
    if not is_folder and not (row.folder and (path.exists() or path.is_symlink())):
        return
    if not is_folder or not row.folder or _holds_more(path, row.folder):
        raise UserError(f"{path} exists, and export.py did not write it; move it away")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _holds_more(folder: Path, files: tuple[str, ...]) -> bool:
    """Return whether something else is in a folder than these files and their folders."""
    known = {str(each) for file in files for each in (file, *PurePosixPath(file).parents)}
    return any(path.relative_to(folder).as_posix() not in known for path in folder.rglob("*"))
