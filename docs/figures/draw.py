"""Draw the figures of the pages: python -m docs.figures.draw [NAME ...]

Without a name all are drawn. Each NAME.py of this folder with a `draw(language)` makes NAME.en.svg
and NAME.zh.svg beside it, from the project's own code; its docstring says what of.
"""

from __future__ import annotations

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import importlib
from pathlib import Path

from duet import backend
from duet.utils.cli.flags import new_parser
from duet.utils.errors import UserError, brief
from duet.utils.files.atomic import atomic_text_file
from duet.utils.processes.command import run_command
from duet.utils.text import say

FOLDER = Path(__file__).parent
LANGUAGES = ("en", "zh")


def names() -> list[str]:
    """Return the names of all figures."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    return sorted(name for name, text in texts.items() if "\ndef draw(language: str)" in text)


def draw(name: str, language: str) -> str:
    """Return the SVG of a figure; a backend has been chosen before."""
    module = importlib.import_module(f"docs.figures.{name}")
    return module.draw(language).svg(inline=getattr(module, "INLINE", False))


def main() -> None:
    parser = new_parser("python -m docs.figures.draw", "Draw the figures of the pages.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of figures; all without any")
    chosen = parser.parse_args().names
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        raise UserError(f"no figure {brief(unknown[0])}; there are: {', '.join(names())}")
    backend.use()
    for name in chosen or names():
        for language in LANGUAGES:
            path = FOLDER / f"{name}.{language}.svg"
            with atomic_text_file(path) as file:
                file.write(draw(name, language))
            say(f"{path.name}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    run_command(main)
