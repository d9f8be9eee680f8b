"""Runs pages as the built site shows them: each block as its copy button takes it, in order.

A tutorial runs top to bottom in an empty folder, with Duet installed and nothing else, in one
namespace. A page of the guide begins with the files that its blocks need and the scripts of a
checkout; it runs the blocks that lie in docs/blocks, each in a namespace of its own.
"""

import ast
import contextlib
import functools
import io
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duet import backend
from duet.utils.project import PROJECT
from tests.docs_blocks.blocks import (
    BLOCKS,
    NEEDED,
    Block,
    BlockError,
    Copied,
    all_blocks,
    as_json,
    code_blocks,
    difference,
)

DOCS = PROJECT / "docs"
TUTORIALS = "tutorials/"
SCRIPTS = ("train.py", "val.py", "detect.py", "export.py", "compare.py", "hubconf.py", "duet",
           "models", "data")  # fmt: skip
SHELL = ("bash", "sh")
TABS = {"PyTorch": "torch", "OneFlow": "oneflow"}
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r'\s*--8<-- "blocks/([\w-]+)(\.\w+)(?::([\w:-]+))?"\s*')
# Commands of tutorials that a test cannot run.
ELSEWHERE = {
    r"make |pip |source ": "makes environments",
    r"git |curl |duet fetch": "needs the network, or a server",
    r"duet serve": "ends by a signal",
    r"torchrun |python -m oneflow\.distributed": "needs a launcher on the path",
    r".* --device 0": "needs a GPU",
    r"duet (compare|doctor)": "takes a minute",
}


@dataclass
class Cell:
    """A block of code on a page.

    Attributes:
        block: what of docs/blocks it shows, or what prints it; None for text of the page itself.
        kind: suffix of the file that it includes, as ".py"; "" for text of the page.
        part: which part or lines it includes; "" for all.
        printed: by the code; None where it does not run.
    """

    copied: Copied
    block: Block | None = None
    kind: str = ""
    part: str = ""
    printed: str | None = None


@dataclass
class Page:
    """A page of docs/en as it is built, or a block that no page shows.

    Attributes:
        name: below docs/en without its suffix, as "tutorials/02-data".
    """

    name: str
    cells: list[Cell]
    values: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def is_tutorial(self) -> bool:
        """Whether it begins in an empty folder."""
        return self.name.startswith(TUTORIALS)

    def blocks(self) -> dict[str, Block]:
        """Return the blocks whose code it shows, by name, that run on the backend in use."""
        here = backend.use()
        shown = [cell.block for cell in self.cells if cell.kind in (".py", ".sh") and cell.block]
        return {block.name: block for block in shown if here in block.backends}

    def out_of(self, block: Block) -> str:
        """Return the text of NAME.out: all that the block printed, or its parts under marks."""
        cells = [cell for cell in self.cells if cell.block == block and cell.printed is not None]
        parts = any(
            cell.block == block and cell.kind == ".out" and cell.part[:1].isalpha()
            for cell in self.cells
        )
        if not parts:
            return block.kept("".join(cell.printed or "" for cell in cells))
        return "".join(
            f"--8<-- [start:{cell.part}]\n{block.kept(cell.printed)}--8<-- [end:{cell.part}]\n"
            for cell in cells
            if cell.printed
        )


def names() -> list[str]:
    """Return the tutorials and the pages that show code of docs/blocks."""
    found = []
    for path in sorted((DOCS / "en").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if path.parent.name == "tutorials" or re.search(r"blocks/[\w-]+\.(py|sh)", text):
            found.append(path.relative_to(DOCS / "en").with_suffix("").as_posix())
    return found


def unshown() -> list[str]:
    """Return the blocks of which pages show only what they print, or values."""
    pages = [path.read_text(encoding="utf-8") for path in (DOCS / "en").rglob("*.md")]
    shown = {name for text in pages for name in re.findall(r"blocks/([\w-]+)\.(?:py|sh)", text)}
    return [name for name in all_blocks() if name not in shown]


def read_page(name: str, site: Path) -> Page:
    """Return a page with the blocks of its built form; BlockError where the two do not fit."""
    if name in unshown():
        block = all_blocks()[name]
        return Page(name, [Cell(Copied("python", block.stored(".py")), block, ".py", name)])
    fences = FENCE.findall((DOCS / "en" / f"{name}.md").read_text(encoding="utf-8"))
    copied = code_blocks((site / f"{name}.html").read_text(encoding="utf-8"))
    if len(fences) != len(copied):
        raise BlockError(f"{name}: {len(fences)} blocks of code, {len(copied)} in the built page")
    blocks = all_blocks()
    cells = []
    for (_, _, body), one in zip(fences, copied, strict=True):
        found = INCLUDED.fullmatch(body)
        block, kind, part = (blocks[found[1]], found[2], found[3] or "") if found else (None,) * 3
        cells.append(Cell(one, block, kind or "", part or ""))
    return Page(name, cells)


def run_page(page: Page) -> None:
    """Run a page under the backend in use and keep what it prints; BlockError where it fails."""
    blocks = page.blocks()
    with tempfile.TemporaryDirectory() as temporary, _working_in(Path(temporary)) as folder:
        if not page.is_tutorial:
            for script in SCRIPTS:
                (folder / script).symlink_to(PROJECT / script)
            for needed in sorted({name for block in blocks.values() for name in block.needs}):
                if needed not in NEEDED:
                    raise BlockError(f"{page.name}: needs {needed}; known: {', '.join(NEEDED)}")
                NEEDED[needed](folder / needed)
        with _as_before(PROJECT if (folder / "train.py").exists() else _installed()):
            _run_cells(page, blocks, folder)
    places = (f"{folder}/", f"{PROJECT}/", f"{_installed()}/")
    for cell in page.cells:
        for place in places:
            cell.printed = cell.printed and cell.printed.replace(place, "")
        cell.printed = cell.printed and cell.printed.replace(sys.executable, "python")


def _run_cells(page: Page, blocks: dict[str, Block], folder: Path) -> None:
    shared: dict[str, Any] = {"__name__": "__main__"}
    spaces = {name: shared if page.is_tutorial else dict(shared) for name in blocks}
    parts = {name: iter(block.parts()) for name, block in blocks.items()}
    last = {cell.block.name: cell for cell in page.cells if cell.block and cell.kind != ".out"}
    for cell in page.cells:
        copied, block = cell.copied, cell.block
        if cell.kind == ".out" or TABS.get(copied.tab, backend.use()) != backend.use():
            continue
        if block and block.name not in blocks:
            continue  # it is one of the other backend
        if copied.file:
            (folder / copied.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / copied.file).write_text(copied.text + "\n", encoding="utf-8")
        elif cell.kind == ".sh" or (copied.language in SHELL and page.is_tutorial):
            cell.printed = _run_commands(copied.text, block, page)
        elif cell.kind == ".py" or (copied.language == "python" and page.is_tutorial):
            if page.is_tutorial:
                _check_imports(copied.text, page)
            space = spaces[block.name] if block else shared
            if block:  # what stands before, unseen
                _run_python(_unseen(parts[block.name], cell.part or block.name), space, page)
            cell.printed = _run_python(copied.text, space, page)
            if block and last[block.name] is cell:
                _run_python(_unseen(parts[block.name], None), space, page)
                page.values[block.name] = space.pop("values", {})


def _unseen(parts: Iterator[tuple[str, str]], until: str | None) -> str:
    """Return the code of the parts before one; all that are left where it is None."""
    code = ""
    for name, text in parts:
        if name == until:
            return code
        code += text
    return code


def _run_python(code: str, space: dict[str, Any], page: Page) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(code, page.name, "exec"), space)
        except SystemExit as error:
            raise BlockError(f"{page.name}: ends with exit code {error.code}\n{code}") from error
        except Exception as error:
            raise BlockError(f"{page.name}: {error!r}\n{code}") from error
    return printed.getvalue()


def _check_imports(code: str, page: Page) -> None:
    """BlockError where code imports what only a checkout has."""
    ours = {path.stem for path in PROJECT.iterdir()} - {"duet"}
    for node in ast.walk(ast.parse(code)):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if found := {name.partition(".")[0] for name in names if name} & ours:
            raise BlockError(f"{page.name}: imports {', '.join(found)}, which is not installed")


def _run_commands(text: str, block: Block | None, page: Page) -> str | None:
    """Return what commands print; None where one of them cannot run in a test."""
    commands = commands_of(text, block.small if block else "")
    if not block and any(
        re.match(pattern, shlex.join(words)) for words in commands for pattern in ELSEWHERE
    ):
        return None
    if page.is_tutorial and not any(Path.cwd().iterdir()):
        return _run_first(text)
    return "".join(map(_run_command, commands))


def _run_command(words: list[str]) -> str:
    """Run one command where Duet is installed, without a shell; BlockError where it fails."""
    if words[0] not in ("duet", "python") or set(words) & {"|", ">", "<", "&&", ";", "&"}:
        raise BlockError(f"{shlex.join(words)}: a command is `duet` or `python` and its arguments")
    start = [sys.executable, "-m", "duet"] if words[0] == "duet" else [sys.executable]
    done = subprocess.run(
        [*start, *words[1:]],
        env={**os.environ, "YOLO_BACKEND": backend.use()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode not in ((0, 1) if "check" in words else (0,)):  # 1: mistakes were found
        raise BlockError(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def _run_first(text: str) -> str:
    """Run the commands with which a page begins, or take what they left for another page."""
    kept = _kept_folder() / f"{abs(hash(text))}"
    if not kept.exists():
        printed = "".join(map(_run_command, commands_of(text)))
        shutil.copytree(Path.cwd(), kept)
        _PRINTED[text] = printed
    else:
        shutil.copytree(kept, Path.cwd(), dirs_exist_ok=True)
    return _PRINTED[text]


_PRINTED: dict[str, str] = {}
_OPEN: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


@functools.cache
def _kept_folder() -> Path:
    _OPEN.append(tempfile.TemporaryDirectory())
    return Path(_OPEN[-1].name).resolve()


@functools.cache
def _installed() -> Path:
    """Return a folder that has Duet as pip installs it: the package, and no script beside it."""
    folder = _kept_folder() / "installed"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "duet", folder / "duet", ignore=ignored)
    return folder


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield folder.resolve()
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _as_before(package: Path) -> Iterator[None]:
    """Let processes that a page starts import Duet; restore this and logging afterwards."""
    disabled, path = logging.root.manager.disable, os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(package)
    try:
        yield
    finally:
        logging.disable(disabled)
        os.environ.pop("PYTHONPATH")
        if path is not None:
            os.environ["PYTHONPATH"] = path


def commands_of(text: str, small: str = "") -> list[list[str]]:
    """Return the commands of a block of shell, each with the flags that make it small.

    No shell reads them: a line is a program and its arguments, `\\` at its end continues it.
    """
    lines = text.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    return [[*words, *shlex.split(small)] for words in commands if words]


def problems_of(page: Page) -> list[str]:
    """Return where a page that has run shows other output than that of the code above it."""
    problems = []
    blocks = page.blocks()
    above: Cell | None = None
    for cell in page.cells:
        if cell.printed is not None:
            above = cell
        elif cell.kind == ".out" and cell.block and cell.block.name in blocks:
            if above is None or above.block != cell.block:
                problems.append(f"{cell.block.name}.out does not stand below its code")
            elif problem := _differs(cell, above):
                problems.append(problem)
    for name, block in blocks.items():
        if page.values.get(name) is not None:
            values = as_json(page.values[name])
            problems.append(difference(block, block.stored(".json"), values))
        problems.append(difference(block, block.stored(".out"), page.out_of(block)))
    return list(filter(None, problems))


def _differs(shown: Cell, above: Cell) -> str:
    """Return how shown output differs from what the code above it printed, or from lines of it."""
    assert shown.block is not None and above.printed is not None
    lines = shown.copied.text.splitlines()
    printed = shown.block.kept(above.printed).rstrip().splitlines()
    starts = range(max(1, len(printed) - len(lines) + 1)) if ":" in shown.part else (0,)
    found = [printed[start : start + len(lines)] if ":" in shown.part else printed
             for start in starts]  # fmt: skip
    texts = ["\n".join(one) for one in found]
    differences = [difference(shown.block, "\n".join(lines), text) for text in texts]
    return min(differences, key=len)


def write_outputs(page: Page) -> None:
    """Write what the blocks of a page printed, and their values, beside them."""
    for name, block in page.blocks().items():
        if block.backends[0] == backend.use():
            block.write(".out", page.out_of(block))
            block.write(".json", as_json(page.values.get(name, {})))


def make_missing_outputs() -> None:
    """Make empty files, and parts, of outputs that pages include and no block has written yet."""
    for page in DOCS.glob("en/**/*.md"):
        for name, kind, part in INCLUDED.findall(page.read_text(encoding="utf-8")):
            path = BLOCKS / f"{name}{kind}"
            if kind == ".out":
                path.touch()
                if part[:1].isalpha() and f"[start:{part}]" not in path.read_text(encoding="utf-8"):
                    with path.open("a", encoding="utf-8") as file:
                        file.write(f"--8<-- [start:{part}]\n--8<-- [end:{part}]\n")


def pages_of(names_given: list[str]) -> list[str]:
    """Return the pages that are named, or that show blocks which are; all for none."""
    known = [*names(), *unshown()]
    if not names_given:
        return known
    found = []
    for name in names_given:
        text = re.compile(rf"blocks/{re.escape(name)}\.(py|sh)")
        pages = [name] if name in known else [
            page for page in names()
            if text.search((DOCS / "en" / f"{page}.md").read_text(encoding="utf-8"))
        ]  # fmt: skip
        if not pages:
            raise BlockError(f"there is no page or block {name}; pages: {', '.join(known)}")
        found += pages
    return list(dict.fromkeys(found))
