"""What a block prints, held against what is stored beside it. Before: `running.py`."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.docs_blocks.block import Block
from tests.docs_blocks.running import Outcome

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def differences(block: Block, stored: str, printed: str) -> str:
    """Return how what was printed differs from what is stored, in one line; "" where it agrees."""
    if block.tolerance == 0:
        return "" if stored == printed else _first_line_apart(stored, printed)
    if _without_numbers(stored) != _without_numbers(printed):
        return _first_line_apart(_without_numbers(stored), _without_numbers(printed))
    pairs = zip(NUMBER.findall(stored), NUMBER.findall(printed), strict=True)
    apart = [(old, new) for old, new in pairs if not _agree(float(old), float(new), block)]
    return ", ".join(f"{new} instead of {old}" for old, new in apart)


def _agree(old: float, new: float, block: Block) -> bool:
    return abs(old - new) <= block.tolerance * max(1.0, abs(old))


def _without_numbers(text: str) -> str:
    lines = NUMBER.sub("#", text).splitlines()
    return "\n".join(" ".join(line.split()) for line in lines)


def _first_line_apart(stored: str, printed: str) -> str:
    old, new = (text.splitlines() for text in (stored, printed))
    pairs = zip([*old, *[""] * len(new)], [*new, *[""] * len(old)], strict=False)
    line, other = next(((a, b) for a, b in pairs if a != b), ("", "another end of line"))
    return f"{other!r} instead of {line!r}"


def as_json(values: dict[str, Any]) -> str:
    """Return the values as their file holds them."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def stored(block: Block, suffix: str) -> str:
    """Return a file beside a block; "" if there is none."""
    path = block.path.with_suffix(suffix)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def write(block: Block, outcome: Outcome) -> None:
    """Write what a block printed and its values, where they differ from what is there."""
    files = {".out": outcome.printed, ".json": as_json(outcome.values) if outcome.values else ""}
    for suffix, text in files.items():
        path = block.path.with_suffix(suffix)
        if not text:
            path.unlink(missing_ok=True)
        elif not path.exists() or differences(block, stored(block, suffix), text):
            path.write_text(text, encoding="utf-8")
