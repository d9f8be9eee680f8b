"""The location of the project; paths to files it ships start here."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
STAMP = "duet-environment.json"  # marks a complete environment made by `make setup`
FETCH_FOLDER = PROJECT / "data" / "fetch"  # lists of what `duet fetch` can download
PUBLIC_WEIGHTS = re.compile(r"yolov5[nsmlx](6|-seg|-cls)?\.pt")  # as in the lists to fetch
WEIGHTS_FILES = (
    "a .safetensors of a training, a .pt of YOLOv5, or a .pt of a YOLOv5u or YOLOv8 detector"
)


def script(name: str) -> list[str]:
    """Return the arguments after `python` that run one of our scripts, as a user types them."""
    path = PROJECT / f"{name}.py"  # in a checkout; an installed package only has `duet`
    return [str(from_here(path))] if path.exists() else ["-m", "duet", name]


def command_line(name: str, *words: object) -> str:
    """Return a shell command that runs one of our scripts with this Python."""
    start = [str(from_here(Path(sys.executable))), *script(name)]
    is_elsewhere = sys.path[0] == str(PROJECT) != os.getcwd()  # by a script's path
    if "-m" in start and is_elsewhere and sys.platform != "win32":  # which has no `env`
        folders = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
        start = ["env", f"PYTHONPATH={os.pathsep.join(folders)}", *start]
    return shlex.join([*start, *map(str, words)])


def from_here(path: Path) -> Path:
    """Make a path inside the working folder relative, as a user would type it."""
    path, here = Path(os.path.abspath(path)), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def list_names() -> list[str]:
    return sorted(path.stem for path in FETCH_FOLDER.glob("*.yaml"))


def how_to_fetch(argument: str | Path) -> str:
    """Say how to get weights or a dataset of this name, or where they are; "" if unknown."""
    name = Path(argument).name
    words = Path(name).stem.lower()
    if public := PUBLIC_WEIGHTS.fullmatch(name):
        kind = f"yolov5{(public[1] or '').removeprefix('6')}"
        if (fetched := Path("datasets", kind, name)).is_file():
            return f"it is in {fetched}"
        words = f"{kind} {name}"
    known = words.partition(" ")[0] in list_names()
    return f"`duet fetch {words}` downloads it and shows how to use it" if known else ""
