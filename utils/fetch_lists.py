"""What `python -m duet fetch` gets, for messages about a file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from duet.utils.project import PROJECT

FOLDER = PROJECT / "data" / "fetch"
PUBLIC_WEIGHTS = re.compile(r"yolov5[nsmlx]6?\.pt")  # those of data/fetch/yolov5.yaml


def list_names() -> list[str]:
    """Return the names of the lists."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def how_to_fetch(argument: str | Path) -> str:
    """Return the command that gets weights or a dataset of this name; "" if none does."""
    name = Path(argument).name
    words = f"yolov5 {name}" if PUBLIC_WEIGHTS.fullmatch(name) else Path(name).stem.lower()
    known = words.partition(" ")[0] in list_names()
    return f"`python -m duet fetch {words}` gets it and says how to name it" if known else ""
