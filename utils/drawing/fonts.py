"""Text -> the fonts of this machine that have its characters.

Before: class names, in any script. After: `label_image.py`, `utils/report/plots/`. Folders are
searched once, when the first text is drawn, and a font is read when those before it lack a
character. Nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import logging
import os
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from PIL import ImageFont

from utils.files.regular import read_bytes
from utils.screen.text import printable

log = logging.getLogger("drawing")

ENDINGS = (".ttf", ".otf", ".ttc", ".otc")
# Known to be plain, upright and complete. The first comes with matplotlib and has Latin, Greek and
# Cyrillic letters, so that most drawings look the same everywhere.
PREFERRED = (
    "DejaVuSans.ttf", "NotoSans-Regular.ttf", "NotoSansCJK-Regular.ttc",
    "NotoSansSC-Regular.otf", "SourceHanSansSC-Regular.otf", "wqy-microhei.ttc", "wqy-zenhei.ttc",
    "DroidSansFallbackFull.ttf", "DroidSansFallback.ttf", "PingFang.ttc", "msyh.ttc",
    "malgun.ttf", "msgothic.ttc",
)  # fmt: skip
LESS_PLAIN = ("bold", "italic", "oblique", "light", "thin", "black", "serif", "mono", "condensed")
WITHOUT_LETTERS = ("lastresort", "adobeblank")  # they have every character, as a box or a blank

MAX_FILES = 20_000  # looked at in font folders; a complete TeX brings a few thousand
MAX_FONTS = 200  # read in search of a character, best first
MAX_FONT_BYTES = 1 << 26
MAX_FACES = 16  # of one file


@dataclass(frozen=True, eq=False)
class Font:
    """A font that can draw."""

    path: Path | None  # None: Pillow's own
    face: int  # of a file with several
    characters: frozenset[str]


class Fonts:
    """The fonts in some folders, best first, and Pillow's own."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._unread = itertools.islice(iter(sorted_fonts(folders)), MAX_FONTS)
        self._read: list[Font] = []
        self._lock = threading.Lock()
        self._has_told = False

    def font_for(self, word: str) -> Font | None:
        """Return the first font that has all characters of a word, None if there is none."""
        with self._lock:
            return next((font for font in self._fonts() if font.characters.issuperset(word)), None)

    def _fonts(self) -> Iterator[Font]:
        """Yield the fonts; read each font file when it is first needed."""
        yield from self._read
        for path in self._unread:
            if font := read_font(path):
                self._read.append(font)
                yield font
        yield pillow_font()

    def tell_missing(self, word: str) -> None:
        """Log once a character that no font has, and the package of a font that has it."""
        if not self._has_told:
            self._has_told = True
            letter = next((letter for letter in word if not self.font_for(letter)), word)
            log.warning(
                "no font of this machine has %s (%s); such names are drawn as numbers. "
                "Install a font with a package of your system: %s on Debian and Ubuntu",
                letter, unicodedata.name(letter[0], "no name"), _package_with(letter[0]),
            )  # fmt: skip


def _package_with(letter: str) -> str:
    east_asian = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO")
    is_east_asian = unicodedata.name(letter, "").startswith(east_asian)
    return "fonts-noto-cjk" if is_east_asian else "fonts-noto-core"


@cache
def system_fonts() -> Fonts:
    """Return the fonts of this machine."""
    return Fonts(font_folders())


def font_folders() -> list[Path]:
    """Return the folders of fonts: matplotlib's first, then the user's and the system's."""
    home = os.path.expanduser("~")
    data = [os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share"]
    data += (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
    other = (f"{home}/.fonts", f"{home}/Library/Fonts", "/Library/Fonts", "/System/Library/Fonts")
    matplotlib = importlib.util.find_spec("matplotlib")
    packages = matplotlib.submodule_search_locations if matplotlib else None
    return [
        *(Path(package, "mpl-data/fonts/ttf") for package in packages or ()),
        *(Path(folder, "fonts") for folder in data if folder),
        *map(Path, other),
    ]


def sorted_fonts(folders: Sequence[Path]) -> list[Path]:
    """Return the font files in folders and below: the preferred, plain ones, all others."""
    files = (
        Path(place, name)
        for folder in folders
        for place, _, names in os.walk(folder)
        for name in names
    )
    fonts = [
        path
        for path in itertools.islice(files, MAX_FILES)
        if path.suffix.lower() in ENDINGS and not path.name.lower().startswith(WITHOUT_LETTERS)
    ]
    return sorted(fonts, key=_rank)


def _rank(path: Path) -> tuple[int, int, str]:
    if path.name in PREFERRED:
        return PREFERRED.index(path.name), 0, ""  # of equal ones that of the first folder
    return len(PREFERRED), sum(word in path.name.lower() for word in LESS_PLAIN), str(path)


def read_font(path: Path) -> Font | None:
    """Read which characters a font file has; None for one that cannot be used."""
    from fontTools.ttLib import TTFont

    try:
        content = read_bytes(path, MAX_FONT_BYTES)
        face = _face(content)
        with TTFont(io.BytesIO(content), fontNumber=0, lazy=True) as tables:
            codes = tables.getBestCmap() or {}
    # The parsers raise whatever a damaged table leads to; the next font is as good.
    except Exception as error:
        log.debug("%s is left out: %s", path, error)
        return None
    return Font(path, face, frozenset(map(chr, codes)))


def _face(content: bytes) -> int:
    """Return the number of the face for simplified Chinese, 0 if there is none.

    The faces of a collection for Chinese, Japanese and Korean differ in how they draw the Han
    characters that these languages share.
    """
    ImageFont.truetype(io.BytesIO(content))
    if content[:4] != b"ttcf":
        return 0
    for index in range(1, MAX_FACES):
        try:
            face = ImageFont.truetype(io.BytesIO(content), index=index)
        except OSError:  # there is no face of this number
            break
        if (face.getname()[0] or "").endswith(" SC"):
            return index
    return 0


@cache
def pillow_font() -> Font:
    """Return the font that comes with Pillow, which has ASCII."""
    return Font(None, 0, frozenset(map(chr, range(33, 127))))


@lru_cache(maxsize=32)
def sized(font: Font, size: int) -> ImageFont.FreeTypeFont:
    """Return a font at a size, pixels of the em."""
    if font.path:
        content = io.BytesIO(read_bytes(font.path, MAX_FONT_BYTES))
        return ImageFont.truetype(content, size, index=font.face)
    own = ImageFont.load_default(size)
    assert isinstance(own, ImageFont.FreeTypeFont), "with a size it is none of the bitmaps"
    return own


def with_font(word: str) -> tuple[Font, str]:
    r"""Return the font for a word, and the word as it is drawn.

    Characters that no font has are spelt out, as \u7ea2; so are those that do not print.
    """
    word = _normal(word)
    if font := system_fonts().font_for(word):
        return font, word
    system_fonts().tell_missing(word)
    spelt_out = word.encode("ascii", "backslashreplace").decode()
    return system_fonts().font_for(spelt_out) or pillow_font(), spelt_out


@lru_cache(maxsize=4096)
def drawable_name(name: str, class_index: int) -> str:
    """Return a class name, or "class 3" where this machine has no font for it."""
    for word in _normal(name).split(" "):
        if not system_fonts().font_for(word):
            system_fonts().tell_missing(word)
            return f"class {class_index}"
    return name


def _normal(text: str) -> str:
    """Return a text as one line, with letters and accents composed (NFC)."""
    return unicodedata.normalize("NFC", printable(text))
