"""What `python -m duet fetch` can download, for messages about missing files."""

from __future__ import annotations

import re
from pathlib import Path

from duet.utils.project import PROJECT

FOLDER = PROJECT / "data" / "fetch"
PUBLIC_WEIGHTS = re.compile(r"yolov5[nsmlx]6?\.pt")  # as in data/fetch/yolov5.yaml


def list_names() -> list[str]:
    """Return the names of the lists."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def how_to_fetch(argument: str | Path) -> str:
    """Suggest the command that downloads weights or a dataset of this name; "" if unknown."""
    name = Path(argument).name
    words = f"yolov5 {name}" if PUBLIC_WEIGHTS.fullmatch(name) else Path(name).stem.lower()
    known = words.partition(" ")[0] in list_names()
    return f"`python -m duet fetch {words}` downloads it and shows how to use it" if known else ""
