"""Fonts of the machine, which are read for their characters."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.reader import Reader
from tests.unit.drawing.stand_in_fonts import make_font
from utils.drawing.fonts import read_font
from utils.errors import UserError


def read(path: Path) -> object:
    """Read a font; of one that cannot be used nothing is said."""
    font = read_font(path)
    if font is None:
        raise UserError(f"{path} is no font")
    return len(font.characters)


def fonts() -> Sequence[bytes]:
    found = []
    for characters in ("abc", "\u7ea2\u7eff", ""):
        file = io.BytesIO()
        make_font(characters).save(file)
        found.append(file.getvalue())
    return found


FONT_READERS = {
    "font": Reader(read, fonts, "a.ttf", tokens=(b"cmap", b"glyf", b"head", b"ttcf", b"OTTO")),
}
