"""An exported file -> the runtime that runs it, chosen by the file or by --runtime."""

from __future__ import annotations

from pathlib import Path

from utils.errors import UserError
from utils.export.formats import FORMATS, Format, find_format
from utils.export.outputs import Runtime
from utils.export.trial import TriedRuntime


def open_runtime(
    path: str | Path, threads: int | None = None, runtime: str = "", is_trusted: bool = False
) -> Runtime:
    """Load an exported file.

    Args:
        threads: of the CPU, to run it with; None: the runtime's own choice.
        runtime: the format whose runtime is to run it; "" for that of the file.
        is_trusted: this program has just written it; any other one is tried in a child first.

    Raises:
        UserError: no such file, not a known format, damaged, or its runtime is not installed; a
            crash, a hang or too much memory in the child.
    """
    path = Path(path)
    row = format_to_run(path, runtime)
    if not path.exists():
        raise UserError(f"--weights {path}: no such file")
    try:
        if is_trusted or not row.is_tried:
            return row.open(path, threads)
        return TriedRuntime(path, row, threads)
    except UserError as error:
        text = str(error)
        raise UserError(text if "--weights" in text else f"--weights {path}: {text}") from error
    except MemoryError as error:
        raise UserError(f"--weights {path}: it does not fit into memory") from error
    except OSError as error:
        raise UserError(f"--weights {path}: {error.strerror or error}") from error


def format_to_run(path: Path, name: str = "") -> Format:
    """Return the format whose runtime runs a file: what --runtime names, else the file's own.

    Raises:
        UserError: it does not read the file; or as `find_format`.
    """
    if not name:
        return find_format(path)
    able = [row for row in FORMATS if row.can_read(path)]
    for row in able:
        if row.name == name:
            return row
    fit = ", ".join(row.name for row in able)
    raise UserError(f"--runtime {name} does not read --weights {path}; accepted: {fit}")
