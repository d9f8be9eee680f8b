"""Blocks of the pages: read what their first lines ask for, run them, compare what they print.

CONTRIBUTING.md describes the first lines for authors.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from duet import backend
from duet.utils.project import PROJECT
from tests.small import write_small_dataset
from tests.tiny_tasks import write_tiny_classifier, write_tiny_segmenter
from tests.tiny_weights import noise, write_tiny_weights

BLOCKS = PROJECT / "docs" / "blocks"
BOTH = ("torch", "oneflow")
RUNS_ON = {
    "on torch and oneflow": BOTH,
    "on torch": ("torch",),
    "on oneflow": ("oneflow",),
    "without a framework": BOTH,
}
LINKED = ("train.py", "val.py", "detect.py", "export.py", "compare.py", "hubconf.py", "duet",
          "models", "data")  # fmt: skip
PART = "# --8<-- ["  # a part that a page includes begins here
SMALL = "# Runs small here: "
LINE = re.compile(
    r"# (?:(Runs|Needs|Shows lines with) (.*)\.|Numbers agree to (\d+(?:\.\d+)?(?:e-?\d+)?)\.|"
    r"(Numbers differ) from run to run\.)"
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


class BlockError(Exception):
    """A block that cannot be read, or that failed."""


def write_images(folder: Path) -> None:
    """Write a folder of two images."""
    folder.mkdir()
    for name in ("1.jpg", "2.jpg"):
        Image.fromarray(noise(60, 90)).save(folder / name)


# Writes a file that a block needs, by its name.
NEEDED: dict[str, Callable[[Path], Any]] = {
    "best.safetensors": lambda path: write_tiny_weights(path.parent).rename(path),
    "best-seg.safetensors": lambda path: write_tiny_segmenter(path.parent).rename(path),
    "best-cls.safetensors": lambda path: write_tiny_classifier(path.parent).rename(path),
    "bus.jpg": lambda path: Image.fromarray(noise(60, 90)).save(path),
    "images": write_images,
    "shapes": lambda path: write_small_dataset(path.parent),
}


@dataclass(frozen=True)
class Block:
    """A block and what its first lines ask for.

    Attributes:
        backends: those that it runs on; its files are written by the first.
        needs: names of files, see NEEDED.
        tolerance: relative for printed numbers above 1, else absolute; 0: every character must be
            the same; infinite: numbers are not compared.
        shown: keep only the lines that contain one of these; empty: keep all.
    """

    path: Path
    backends: tuple[str, ...]
    needs: tuple[str, ...] = ()
    tolerance: float = 0.0
    shown: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which pages and commands refer to it."""
        return self.path.stem

    def stored(self, suffix: str) -> str:
        """Return the text of a file beside the block; "" if there is none."""
        path = self.path.with_suffix(suffix)
        return path.read_text(encoding="utf-8") if path.exists() else ""


@dataclass
class Outcome:
    """What a block printed, and the values that it leaves for running text."""

    printed: str
    values: dict[str, Any] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        """Return the text of each file beside the block, by suffix; "" for no file."""
        values = json.dumps(self.values, indent=2, ensure_ascii=False) + "\n"
        return {".out": self.printed, ".json": values if self.values else ""}


def all_blocks() -> list[Block]:
    """Return every block, by name."""
    return [read_block(path) for path in sorted(BLOCKS.iterdir()) if path.suffix in (".py", ".sh")]


def read_block(path: Path) -> Block:
    """Return a block; BlockError where its first lines are wrong."""
    asked: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith(PART):
            if not (found := LINE.fullmatch(line)):
                break
            asked[found[1] or found[4] or "Numbers agree to"] = found[2] or found[3]
    runs_on = asked.get("Runs", "")
    if runs_on not in RUNS_ON:
        choices = ", ".join(f'"# Runs {name}."' for name in RUNS_ON)
        raise BlockError(f"{path.name}: its first line is none of {choices}")
    needs, shown = (
        tuple(filter(None, asked.get(key, "").split(", "))) for key in ("Needs", "Shows lines with")
    )
    if unknown := set(needs) - set(NEEDED):
        raise BlockError(f"{path.name}: needs {', '.join(unknown)}; known: {', '.join(NEEDED)}")
    tolerance = float("inf") if "Numbers differ" in asked else asked.get("Numbers agree to", "0")
    return Block(path, RUNS_ON[runs_on], needs, float(tolerance), shown)


def run_block(block: Block) -> Outcome:
    """Run a block in an empty folder under the backend in use; BlockError where it fails."""
    with tempfile.TemporaryDirectory() as name, _working_in(Path(name)) as folder:
        for linked in LINKED:
            (folder / linked).symlink_to(PROJECT / linked)
        for needed in block.needs:
            NEEDED[needed](folder / needed)
        outcome = _run_python(block) if block.path.suffix == ".py" else _run_commands(block)
    for place in (f"{folder}/", f"{PROJECT}/"):
        outcome.printed = outcome.printed.replace(place, "")
    if block.shown:
        lines = outcome.printed.splitlines(keepends=True)
        kept = [line for line in lines if any(word in line for word in block.shown)]
        outcome.printed = "".join(kept)
    return outcome


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(before)


def _run_python(block: Block) -> Outcome:
    with contextlib.redirect_stdout(io.StringIO()) as printed, _as_before(block.path.parent):
        try:
            names = runpy.run_path(str(block.path), run_name="__main__")
        except SystemExit as error:
            raise BlockError(f"{block.path.name} ends with exit code {error.code}") from error
    return Outcome(printed.getvalue(), names.get("values", {}))


@contextlib.contextmanager
def _as_before(folder: Path) -> Iterator[None]:
    """Let a block import others of its folder; restore imports and logging afterwards."""
    disabled = logging.root.manager.disable
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        logging.disable(disabled)
        for path in folder.glob("*.py"):
            sys.modules.pop(path.stem, None)


def _run_commands(block: Block) -> Outcome:
    printed = []
    for command in commands_of(block.path.read_text(encoding="utf-8")):
        done = subprocess.run(
            command,
            env={**os.environ, "YOLO_BACKEND": backend.use(), "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BlockError(f"{block.path.name}: {shlex.join(command)}\n{done.stdout}")
        printed.append(done.stdout)
    return Outcome("".join(printed))


def commands_of(text: str) -> list[list[str]]:
    """Return the commands of a shell block, each with the flags that make it small.

    No shell reads them: a line is `python` and its arguments, `\\` at its end continues it.
    """
    commands, small = [], []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith(SMALL):
            small = shlex.split(line.removeprefix(SMALL))
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] != "python" or set(words) & {"|", ">", "<", "&&", ";", "&"}:
            raise BlockError(f"{line}: a command is `python` and its arguments, without a shell")
        commands.append([sys.executable, *words[1:], *small])
        small = []
    return commands


def difference(block: Block, stored: str, printed: str) -> str:
    """Return how the printed text differs from the stored one; "" where they agree."""
    if block.tolerance == 0:
        old, new = stored.splitlines(keepends=True), printed.splitlines(keepends=True)
        return "" if old == new else f"stored:\n{stored}\nprinted:\n{printed}"
    old, new = (NUMBER.sub("#", text).split() for text in (stored, printed))
    numbers = [list(map(float, NUMBER.findall(text))) for text in (stored, printed)]
    far = old != new or any(
        abs(a - b) > block.tolerance * max(1.0, abs(a)) for a, b in zip(*numbers, strict=True)
    )
    return f"stored:\n{stored}\nprinted:\n{printed}" if far else ""


def main(names: list[str]) -> int:
    """Run the blocks named, or all; write changed outputs; return the exit code."""
    bound = backend.use()
    blocks = {block.name: block for block in all_blocks()}
    if unknown := set(names) - set(blocks):
        print(f"there is no block {', '.join(unknown)}; there are {', '.join(blocks)}")
        return 2
    for name in names or blocks:
        block = blocks[name]
        if block.backends[0] != bound:
            print(f"{name}: is written under YOLO_BACKEND={block.backends[0]}")
            continue
        for suffix, text in run_block(block).files().items():
            path = block.path.with_suffix(suffix)
            if not text:
                path.unlink(missing_ok=True)
            elif not path.exists() or difference(block, block.stored(suffix), text):
                path.write_text(text, encoding="utf-8")
        print(f"{name}: ran")
    return 0
