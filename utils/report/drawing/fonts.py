"""Find the first installed font that has all characters of a text.

matplotlib's own font comes first. It has Latin, Greek and Cyrillic letters, so most drawings look
the same everywhere. Installed fonts follow; nothing is downloaded.
"""

from __future__ import annotations

import logging
import unicodedata
from functools import cache, lru_cache
from pathlib import Path

from PIL import ImageFont

from duet.utils.text import printable

MAX_FONTS = 200  # searched for a character, plain ones first
LESS_PLAIN = ("bold", "italic", "oblique", "light", "thin", "black", "serif", "mono", "condensed")
WITHOUT_LETTERS = ("lastresort", "adobeblank")  # have every character, as a box or a blank
DIGITS = "0123456789. "  # shown next to each name

log = logging.getLogger("drawing")


@cache
def font_files() -> tuple[str, ...]:
    """Return the installed font files, best first."""
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
    """Return the characters in a font file; empty if it is unusable."""
    from matplotlib.ft2font import FT2Font

    try:
        ImageFont.truetype(path, 10)  # bitmap fonts may lack this size
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    # FreeType and matplotlib raise arbitrary errors for damaged tables; try the next font.
    except Exception as error:
        log.debug("skipping font %s: %s", path, error)
        return frozenset()


@lru_cache(maxsize=4096)
def font_for(text: str) -> str | None:
    """Return the first font file that has all characters of a text; None if none has."""
    return next((path for path in font_files() if characters_of(path).issuperset(text)), None)


@lru_cache(maxsize=32)
def sized(path: str, size: int) -> ImageFont.FreeTypeFont:
    """Load a font file at a size in pixels."""
    return ImageFont.truetype(path, size)


@lru_cache(maxsize=4096)
def drawable_name(name: str, class_index: int) -> str:
    """Return a class name as one line, or "class 3", for example, if no font has it."""
    shown = one_line(name)
    if font_for(shown + DIGITS):
        return shown
    warn_missing(shown)
    return f"class {class_index}"


def one_line(text: str) -> str:
    """Return a text as one line in NFC."""
    return unicodedata.normalize("NFC", printable(text))


_ADVISED: set[str] = set()


def warn_missing(text: str) -> None:
    """Log a character missing from all fonts, once per package that provides it."""
    letter = next((letter for letter in text if not font_for(letter)), text[:1])
    name = unicodedata.name(letter, "no name")
    east_asian = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO")
    package = "fonts-noto-cjk" if name.startswith(east_asian) else "fonts-noto-core"
    if package not in _ADVISED:
        _ADVISED.add(package)
        log.warning(
            "no installed font has %s (%s), so such names are drawn as numbers; install a font "
            "package, on Debian and Ubuntu %s",
            letter, name, package,
        )  # fmt: skip
