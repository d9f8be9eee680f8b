"""Blocks of the pages: docs/blocks holds their code, and what it prints; readers copy them.

CONTRIBUTING.md describes their first lines for authors; `pages.py` runs them as pages show them.
The files that blocks of the guide need: their pages begin where a reader has them already.
What commands answer, for blocks that show it: they run here, without a process of their own.
"""

import contextlib
import importlib
import io
import json
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from PIL import Image

from duet.backend import BackendError
from duet.utils.cli.train_config import read_train_flags
from duet.utils.cli.val_config import parse_val_flags
from duet.utils.detect.config import parse_detect_flags
from duet.utils.errors import UserError
from duet.utils.export.config import parse_export_flags
from duet.utils.project import PROJECT
from tests.small import (
    noise,
    write_small_dataset,
    write_tiny_classifier,
    write_tiny_segmenter,
    write_tiny_weights,
)

BLOCKS = PROJECT / "docs" / "blocks"
BOTH = ("torch", "oneflow")
RUNS_ON = {
    "on torch and oneflow": BOTH,
    "on torch": ("torch",),
    "on oneflow": ("oneflow",),
    "without a framework": BOTH,
}
PART = re.compile(r"# --8<-- \[(start|end):([\w-]+)\]")  # that a page includes
SMALL = "# Runs small here: "
LINE = re.compile(
    r"# (?:(Runs|Needs|Shows lines with) (.*)\.|Numbers agree to (\d+(?:\.\d+)?(?:e-?\d+)?)\.|"
    r"(Numbers differ) from run to run\.)"
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
LEFT_OUT = "...\n"  # in place of lines that a page does not show


class BlockError(Exception):
    """A block that cannot be read, or that failed."""


@dataclass(frozen=True)
class Block:
    """A block and what its first lines ask for.

    Attributes:
        backends: those that it runs on; its files are written by the first.
        needs: names of files, see `NEEDED`.
        tolerance: relative for printed numbers above 1, else absolute; 0: every character must be
            the same; infinite: numbers are not compared.
        shown: keep only the lines that contain one of these; empty: keep all.
        small: flags that a long command runs with here.
    """

    path: Path
    backends: tuple[str, ...] = BOTH
    needs: tuple[str, ...] = ()
    tolerance: float = 0.0
    shown: tuple[str, ...] = ()
    small: str = ""

    @property
    def name(self) -> str:
        """The name by which pages and commands refer to it."""
        return self.path.stem

    def stored(self, suffix: str) -> str:
        """Return the text of a file beside the block; "" if there is none."""
        path = self.path.with_suffix(suffix)
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def write(self, suffix: str, text: str) -> None:
        """Write a file beside the block where it differs; remove it where there is no text."""
        path = self.path.with_suffix(suffix)
        if not text:
            path.unlink(missing_ok=True)
        elif not path.exists() or difference(self, self.stored(suffix), text):
            path.write_text(text, encoding="utf-8")

    def parts(self) -> list[tuple[str, str]]:
        """Return names and texts of the parts in order; "" names what no page shows.

        A block without marks is one part of its own name.
        """
        text = self.path.read_text(encoding="utf-8")
        if not PART.search(text):
            return [(self.name, text)]
        pieces = PART.split(text)  # text, then "start" or "end", a name, text, ...
        found = [("", pieces[0])]
        for kind, name, piece in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            found.append((name if kind == "start" else "", piece))
        return found

    def kept(self, printed: str) -> str:
        """Return the lines that a page shows of what is printed."""
        if not self.shown:
            return printed
        kept: list[str] = []
        for line in printed.splitlines(keepends=True):
            if any(word in line for word in self.shown):
                kept.append(line)
            elif kept and kept[-1] != LEFT_OUT:
                kept.append(LEFT_OUT)
        return "".join(kept[:-1] if kept and kept[-1] == LEFT_OUT else kept)


def all_blocks() -> dict[str, Block]:
    """Return every block, by name."""
    paths = [path for path in sorted(BLOCKS.iterdir()) if path.suffix in (".py", ".sh")]
    return {path.stem: read_block(path) for path in paths}


def read_block(path: Path) -> Block:
    """Return a block; BlockError where its first lines are wrong."""
    asked: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(SMALL):
            asked[SMALL] = line.removeprefix(SMALL)
        elif not PART.match(line):
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
    tolerance = float("inf") if "Numbers differ" in asked else asked.get("Numbers agree to", "0")
    small = asked.get(SMALL, "")
    return Block(path, RUNS_ON[runs_on], needs, float(tolerance), shown, small)


def as_json(values: dict[str, Any]) -> str:
    """Return the values that a block leaves for running text as a file; "" where it leaves none."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n" if values else ""


def difference(block: Block, stored: str, printed: str) -> str:
    """Return how the printed text differs from the stored one; "" where they agree."""
    if block.tolerance == 0:
        return "" if stored == printed else f"stored:\n{stored}\nprinted:\n{printed}"
    old, new = (NUMBER.sub("#", text).split() for text in (stored, printed))
    numbers = [list(map(float, NUMBER.findall(text))) for text in (stored, printed)]
    far = old != new or any(
        abs(a - b) > block.tolerance * max(1.0, abs(a)) for a, b in zip(*numbers, strict=True)
    )
    return f"stored:\n{stored}\nprinted:\n{printed}" if far else ""


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


# As the copy button takes them from a page of the built site.

LANGUAGE = "language-"
VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


@dataclass
class Copied:
    """A block of code of a page.

    Attributes:
        text: what the copy button takes.
        file: name of the file that the block shows; "" for code to run, or its output.
        tab: label of the tab that it lies in; "" outside of tabs.
    """

    language: str
    text: str = ""
    file: str = ""
    tab: str = ""


def code_blocks(html: str) -> list[Copied]:
    """Return the blocks of code of a built page, in order."""
    reader = _Reader()
    reader.feed(html)
    for block in reader.blocks:
        block.text = block.text.rstrip()
    return reader.blocks


class _Reader(HTMLParser):
    """Collects blocks; `open` holds the classes of the elements around the present place."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Copied] = []
        self.open: list[tuple[str, set[str]]] = []
        self.labels: list[list[str]] = []  # of the tabs around
        self.tabs: list[int] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        classes = set((dict(attributes).get("class") or "").split())
        self.open.append((tag, classes))
        if "tabbed-set" in classes:
            self.labels.append([])
            self.tabs.append(-1)
        elif "tabbed-block" in classes:
            self.tabs[-1] += 1
        elif tag == "label" and self._inside("tabbed-labels"):
            self.labels[-1].append("")
        elif "highlight" in classes:
            language = next((name for name in classes if name.startswith(LANGUAGE)), "")
            tab = self.labels[-1][self.tabs[-1]] if self.labels else ""
            self.blocks.append(Copied(language.removeprefix(LANGUAGE), tab=tab))

    def handle_endtag(self, tag: str) -> None:
        while any(name == tag for name, _ in self.open):
            name, classes = self.open.pop()
            if "tabbed-set" in classes:
                self.labels.pop()
                self.tabs.pop()
            if name == tag:
                break

    def handle_data(self, data: str) -> None:
        if self._inside("highlight"):
            if self._inside("filename"):
                self.blocks[-1].file += data
            elif any(tag == "code" for tag, _ in self.open):
                self.blocks[-1].text += data
        elif self._inside("tabbed-labels") and self.labels[-1]:
            self.labels[-1][-1] += data.strip()

    def _inside(self, name: str) -> bool:
        return any(name in classes for _, classes in self.open)


# What commands answer.

WIDTH = 80  # of a line on a page
PARSERS: dict[str, Callable[[Sequence[str]], object]] = {
    "train.py": read_train_flags,
    "val.py": parse_val_flags,
    "detect.py": parse_detect_flags,
    "export.py": parse_export_flags,
}


def show(name: str, command: str) -> None:
    """Print a command and its answer, in the marks by which a page includes them as NAME.out:name.

    Args:
        name: of the part; letters, digits and hyphens.
        command: a script and its flags, as `train.py --epochs 3`.
    """
    print(f"--8<-- [start:{name}]")
    print(f"$ duet {command.replace('.py', '', 1)}")
    print(answer(command))
    print(f"--8<-- [end:{name}]")


def flags_taken(command: str) -> str:
    """Return the lines with which a script refuses flags, or "accepted"."""
    script, *flags = shlex.split(command)
    lines = _printed(lambda: PARSERS[script](flags)).splitlines()[:-1]  # the last names --help
    return _fitting("\n".join(lines).removeprefix("error: ")) or "accepted"


def answer(command: str) -> str:
    """Return the message with which a script refuses a command, in lines that fit on a page."""
    script, *flags = shlex.split(command)
    main = importlib.import_module(script.removesuffix(".py")).main
    with mock.patch.object(sys, "argv", [f"duet {script.removesuffix('.py')}", *flags]):
        reported_text = _printed(main)
    if not reported_text:
        raise BlockError(f"{command}: is not refused, so that there is no answer to show")
    for place in (Path.cwd(), PROJECT):  # before lines are cut, which must not depend on it
        reported_text = reported_text.replace(f"{place}/", "")
    return _fitting(reported_text)


def _printed(work: Callable[[], object]) -> str:
    """Return what a command prints of a mistake; "" where there is none."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        try:
            work()
        except (UserError, BackendError) as error:
            print(f"error: {error}", file=printed)
        except SystemExit:  # the parser has said why
            pass
    return printed.getvalue()


def _fitting(text: str) -> str:
    """Return the text in lines that fit on a page."""
    return "\n".join(
        textwrap.fill(line, WIDTH, break_on_hyphens=False, break_long_words=False)
        for line in text.splitlines()
    )
