"""A block becomes what it prints. Before: `block.py`. After: `outputs.py`."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import backend
from tests.docs_blocks.block import Block, BlockError
from tests.docs_blocks.needed_files import FILES
from utils.files.project import PROJECT

LINKED = ("train.py", "val.py", "detect.py", "export.py", "compare.py", "hubconf.py", "models",
          "data")  # fmt: skip
SMALL = "# Runs small here: "


@dataclass
class Outcome:
    """What a block printed, and the values that it leaves for running text."""

    printed: str
    values: dict[str, Any] = field(default_factory=dict)


def run_block(block: Block) -> Outcome:
    """Run a block in an empty folder under the backend in use; BlockError where it fails."""
    with tempfile.TemporaryDirectory() as name, working_in(Path(name)) as folder:
        for linked in LINKED:
            (folder / linked).symlink_to(PROJECT / linked)
        for needed in block.needs:
            FILES[needed](folder / needed)
        outcome = _run_python(block) if block.path.suffix == ".py" else _run_commands(block)
    for place in (f"{folder}/", f"{PROJECT}/"):
        outcome.printed = outcome.printed.replace(place, "")
    if block.shown:
        lines = outcome.printed.splitlines(keepends=True)
        outcome.printed = "".join(line for line in lines if _has_any(line, block.shown))
    return outcome


def _has_any(line: str, words: Sequence[str]) -> bool:
    return any(word in line for word in words)


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[Path]:
    """Make it the working folder for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(before)


def _run_python(block: Block) -> Outcome:
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        importing_from(block.path.parent),
        logging_as_before(),
    ):
        try:
            names = runpy.run_path(str(block.path), run_name="__main__")
        except SystemExit as error:
            raise BlockError(f"{block.path.name} ends with exit code {error.code}") from error
    return Outcome(printed.getvalue(), names.get("values", {}))


@contextlib.contextmanager
def logging_as_before() -> Iterator[None]:
    """Undo what a block says of logging for the whole process."""
    before = logging.root.manager.disable
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Have blocks import others of their folder, anew in each block."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
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
