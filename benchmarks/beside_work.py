"""The work of a trainer, as it reports it, and how that of two trainers differs.

Before: `beside.py` ran both. A trainer with YOLOv5's command line leaves opt.yaml, and prints the
number of parameters and progress bars; ours leaves work.json. What one of them does not say cannot
be compared, and a line says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from utils.comparison.equality import flatten
from utils.files.json import read_json
from utils.files.regular import MAX_BYTES, read_bytes
from utils.files.yaml import parse_yaml

EPOCHS, BATCHES, CACHE = "epochs", "batches per epoch", "cache"
BARS = "its progress bars count to"
IMAGES = ("training images", "validation images")
OPTIONS = {  # by their names in opt.yaml: ours, and YOLOv5's
    "image_size": "image size",
    "imgsz": "image size",
    "batch_size": "batch size",
    "cache": CACHE,
}
WORK = {  # by their names in work.json
    "parameters": "parameters",
    "precision": "precision",
    "train_images": IMAGES[0],
    "validation.images": IMAGES[1],
    "batches_sha1": "SHA-1 of the batches",
}
PARAMETERS = re.compile(r"\b(\d[\d,]*) parameters\b")
FULL_BAR = re.compile(r"\b(\d+)/\1 \[\d")  # of tqdm
NOT_CACHED = re.compile(r"\bnot caching\b", re.IGNORECASE)


def read_work(folder: Path, log: Path, epochs: int) -> dict[str, Any]:
    """Return what a run says of its work, by name.

    Args:
        folder: of the run, as the trainer left it.
        log: what it printed.
        epochs: rows of its results.csv; 0 if it wrote none.
    """
    printed = log.read_text(encoding="utf-8", errors="replace")
    options, work = _options(folder / "opt.yaml"), _work(folder / "work.json")
    said = {EPOCHS: epochs} if epochs else {}
    if found := PARAMETERS.search(printed):
        said["parameters"] = int(found[1].replace(",", ""))
    said |= {name: options[key] for key, name in OPTIONS.items() if key in options}
    said |= {name: work[key] for key, name in WORK.items() if key in work}
    if CACHE in said:
        said[CACHE] = _cached(said[CACHE], work, printed)
    if epochs and "batches" in work:
        said[BATCHES] = work["batches"] // epochs
    elif totals := {int(total) for total in FULL_BAR.findall(printed)}:
        said[BARS] = sorted(totals)
    return said


def _cached(asked: object, work: Mapping[str, Any], printed: str) -> str:
    """Return the kind of cache that a run really had."""
    had = work.get("cached.training", "none" if NOT_CACHED.search(printed) else "all")
    kind = "ram" if asked is True else str(asked or "none")
    return kind if had == "all" or kind == "none" else f"{kind}, of the images {had}"


def _options(path: Path) -> Mapping[Any, Any]:
    """Read opt.yaml; a file that is not there, or of another form, says nothing."""
    try:
        document = parse_yaml(read_bytes(path, MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _work(path: Path) -> Mapping[str, Any]:
    """Read the work of work.json, nested names joined by dots."""
    try:
        document = read_json(path)
    except (OSError, ValueError):
        return {}
    work = document.get("work") if isinstance(document, dict) else None
    return flatten(work) if isinstance(work, dict) else {}


class Work(NamedTuple):
    """The work of two runs, compared by name."""

    equal: list[str]
    unequal: list[str]  # a line each
    not_said: list[str]  # by at least one of them


def compare_work(ours: Mapping[str, Any], other: Mapping[str, Any]) -> Work:
    """Compare what two runs say of their work."""
    ours, other = _with_bars(ours, other), _with_bars(other, ours)
    work = Work([], [], [])
    for name in dict.fromkeys((EPOCHS, BATCHES, *OPTIONS.values(), *WORK.values())):
        if name not in ours or name not in other:
            work.not_said.append(name)
        elif ours[name] == other[name]:
            work.equal.append(name)
        else:
            work.unequal.append(f"{name}: {ours[name]} in ours, {other[name]} in the other")
    return work


def _with_bars(said: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said, and of the progress bars those that count what the other counts.

    A trainer that has bars has one of its batches: none of that length is a difference. It need not
    have one of its images: none of that length says nothing of them.
    """
    totals = said.get(BARS, [])
    found = {name: beside[name] for name in IMAGES if beside.get(name) in totals}
    if totals and BATCHES in beside:
        batches = beside[BATCHES]
        found[BATCHES] = batches if batches in totals else " or ".join(map(str, totals))
    return {**found, **said}
