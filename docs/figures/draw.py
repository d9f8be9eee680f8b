"""Draw the figures of the pages: python -m docs.figures.draw [NAME ...]

Without a name all are drawn. Each function `draw_NAME(language)` of a file of this folder makes
NAME.en.svg and NAME.zh.svg here, from the project's own code. Its title is the text that stands in
the place of the picture on a page, the longest one.
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import importlib
import re
from functools import cache
from pathlib import Path

from duet import backend
from duet.utils.cli.flags import new_parser
from duet.utils.errors import UserError, brief
from duet.utils.files.atomic import atomic_text_file
from duet.utils.processes.command import run_command
from duet.utils.text import say

FOLDER = Path(__file__).parent
LANGUAGES = ("en", "zh")
FUNCTION = re.compile(r"^def draw_(\w+)\(language: str\)", re.MULTILINE)
SHOWN = re.compile(r"!\[([^]]*)\]\([./]*figures/(\w+)\.")


@cache
def scripts() -> dict[str, str]:
    """Return the names of all figures, and the file that draws each."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))}
    return {name: file for file, text in texts.items() for name in FUNCTION.findall(text)}


@cache
def titles(language: str) -> dict[str, str]:
    """Return what the pages of a language call each figure."""
    pages = sorted((FOLDER.parent / language).rglob("*.md"))
    found = [one for page in pages for one in SHOWN.findall(page.read_text(encoding="utf-8"))]
    return {name: words for words, name in sorted(found, key=lambda one: len(one[0]))}


def draw(name: str, language: str) -> str:
    """Return the SVG of a figure; a backend has been chosen before."""
    module = importlib.import_module(f"docs.figures.{scripts()[name]}")
    return getattr(module, f"draw_{name}")(language).svg(titles(language).get(name, ""))


def main() -> None:
    parser = new_parser("python -m docs.figures.draw", "Draw the figures of the pages.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of figures; all without any")
    chosen = parser.parse_args().names
    unknown = sorted(set(chosen) - set(scripts()))
    if unknown:
        raise UserError(f"no figure {brief(unknown[0])}; there are: {', '.join(scripts())}")
    backend.use()
    for name in chosen or scripts():
        for language in LANGUAGES:
            path = FOLDER / f"{name}.{language}.svg"
            with atomic_text_file(path) as file:
                file.write(draw(name, language))
            say(f"{path.name}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    run_command(main)
