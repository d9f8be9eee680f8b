"""A block of the pages: a file of docs/blocks, and what its first lines say.

After: `running.py`, `outputs.py`. CONTRIBUTING.md tells authors about the lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.docs_blocks.needed_files import FILES
from utils.files.project import PROJECT

BLOCKS = PROJECT / "docs" / "blocks"
BOTH = ("torch", "oneflow")
RUNS_ON = {
    "on torch and oneflow": BOTH,
    "on torch": ("torch",),
    "on oneflow": ("oneflow",),
    "without a framework": BOTH,
}
PART = "# --8<-- ["  # where a part begins that a page includes
LINE = re.compile(
    r"# (?:(Runs|Needs|Shows lines with) (.*)\.|Numbers agree to (\d+(?:\.\d+)?(?:e-?\d+)?)\.|"
    r"(Numbers differ) from run to run\.)"
)
MEANT = re.compile(r"# (Runs (?!small)|Needs|Shows lines|Numbers)")


class BlockError(Exception):
    """A block that cannot be run, or that failed."""


@dataclass(frozen=True)
class Block:
    """A block and what its first lines say.

    Attributes:
        tolerance: of the numbers that it prints: relative for those above 1, else absolute; 0:
            every character must be the same; infinite: numbers are not compared.
        shown: what a line has that is kept of what it prints; none: all lines are kept.
    """

    path: Path
    backends: tuple[str, ...]
    needs: tuple[str, ...] = ()
    tolerance: float = 0.0
    shown: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How pages and commands call it."""
        return self.path.stem


def all_blocks(folder: Path = BLOCKS) -> list[Block]:
    """Return every block of a folder, by name."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".py", ".sh"))
    return [read_block(path) for path in paths]


def read_block(path: Path) -> Block:
    """Return a block; BlockError where its first lines are wrong."""
    said = _first_lines(path)
    runs_on = said.get("Runs", "")
    if runs_on not in RUNS_ON:
        choices = ", ".join(f'"# Runs {name}."' for name in RUNS_ON)
        raise BlockError(f"{path.name}: its first line is none of {choices}")
    needs, shown = (_words(said.get(key, "")) for key in ("Needs", "Shows lines with"))
    if unknown := set(needs) - set(FILES):
        raise BlockError(f"{path.name}: needs {', '.join(unknown)}; known: {', '.join(FILES)}")
    tolerance = float("inf") if "Numbers differ" in said else said.get("Numbers agree to", "0")
    return Block(path, RUNS_ON[runs_on], needs, float(tolerance), shown)


def _first_lines(path: Path) -> dict[str, str]:
    """Return what each of the first lines says, by what it begins with."""
    said: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(PART):
            continue
        found = LINE.fullmatch(line)
        if not found and MEANT.match(line):
            raise BlockError(
                f"{path.name}: {line!r} is not understood; CONTRIBUTING.md has examples"
            )
        if not found:
            break
        said[found[1] or found[4] or "Numbers agree to"] = found[2] or found[3]
    return said


def _words(listed: str) -> tuple[str, ...]:
    return tuple(filter(None, listed.split(", ")))
