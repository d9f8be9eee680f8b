"""Text -> the first font of this machine that has all its characters.

matplotlib's own font comes first. It has Latin, Greek and Cyrillic letters, so most drawings look
the same everywhere. Then come the fonts that it finds on this machine; nothing is fetched.
"""

from __future__ import annotations

import logging
import unicodedata
from functools import cache, lru_cache
from pathlib import Path

from PIL import ImageFont

from duet.utils.text import printable

MAX_FONTS = 200  # read in search of a character, plain ones first
LESS_PLAIN = ("bold", "italic", "oblique", "light", "thin", "black", "serif", "mono", "condensed")
WITHOUT_LETTERS = ("lastresort", "adobeblank")  # they have every character, as a box or a blank
FIGURES = "0123456789. "  # beside each name

log = logging.getLogger("drawing")


@cache
def font_files() -> tuple[str, ...]:
    """Return the font files of this machine, best first."""
    import matplotlib
    from matplotlib import font_manager

    own = str(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf"))
    found = sorted(font_manager.findSystemFonts(), key=_rank)
    usable = [path for path in found if not Path(path).name.lower().startswith(WITHOUT_LETTERS)]
    return (own, *usable[: MAX_FONTS - 1])


def _rank(path: str) -> tuple[int, str]:
    return sum(word in Path(path).name.lower() for word in LESS_PLAIN), path


@cache
def characters_of(path: str) -> frozenset[str]:
    """Return which characters a font file has; none for one that cannot be used."""
    from matplotlib.ft2font import FT2Font

    try:
        ImageFont.truetype(path, 10)  # a font of bitmaps has other sizes
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    # FreeType and matplotlib raise whatever a damaged table leads to; the next font is as good.
    except Exception as error:
        log.debug("%s is left out: %s", path, error)
        return frozenset()


@lru_cache(maxsize=4096)
def font_for(text: str) -> str | None:
    """Return the first font file that has all characters of a text, None if there is none."""
    return next((path for path in font_files() if characters_of(path).issuperset(text)), None)


@lru_cache(maxsize=32)
def sized(path: str, size: int) -> ImageFont.FreeTypeFont:
    """Return a font file at a size, pixels of the em."""
    return ImageFont.truetype(path, size)


@lru_cache(maxsize=4096)
def drawable_name(name: str, class_index: int) -> str:
    """Return a class name as one line, or "class 3" where this machine has no font for it."""
    shown = one_line(name)
    if font_for(shown + FIGURES):
        return shown
    warn_missing(shown)
    return f"class {class_index}"


def one_line(text: str) -> str:
    """Return a text as one line, with letters and accents composed (NFC)."""
    return unicodedata.normalize("NFC", printable(text))


_ADVISED: set[str] = set()


def warn_missing(text: str) -> None:
    """Log the character of a text that no font has, once for each package that has it."""
    letter = next((letter for letter in text if not font_for(letter)), text[:1])
    name = unicodedata.name(letter, "no name")
    east_asian = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO")
    package = "fonts-noto-cjk" if name.startswith(east_asian) else "fonts-noto-core"
    if package not in _ADVISED:
        _ADVISED.add(package)
        log.warning(
            "no font of this machine has %s (%s); such names are drawn as numbers. "
            "Install a font with a package of your system: %s on Debian and Ubuntu",
            letter, name, package,
        )  # fmt: skip
