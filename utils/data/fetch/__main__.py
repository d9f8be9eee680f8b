"""`python -m utils.data.fetch`: fetch what a list names, and what is still missing of it."""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
from collections.abc import Sequence
from pathlib import Path

from backend.words import count
from utils.cli.flags import new_parser
from utils.data.fetch.fetching import fetch, locked, require_space_for
from utils.data.fetch.lists import Item, choose, find_list
from utils.errors import UserError
from utils.processes.command import run_command
from utils.screen.text import say

OUT = "DIR/"  # the folder of --out in what a list says is next


def main() -> None:
    flags = parse_flags()
    found = find_list(flags.list)
    items = choose(found, flags.files)
    say(*found.about.splitlines(), *map(describe, items), f"into {flags.out.absolute()}")
    try:
        with locked(flags.out):
            require_space_for(items, flags.out)
            for item in items:
                say(fetch(item, flags.out))
    except OSError as error:
        raise UserError(f"--out {flags.out}: {error}") from error
    then = found.then.replace(OUT, f"{flags.out}/")
    say(f"{count(len(items), 'file')} there", *then.splitlines())


def describe(item: Item) -> str:
    """Return a file of a list in one line."""
    size = "of unknown size" if item.size is None else f"{item.size:,} bytes"
    place = item.path if item.unpack is None else f"unpacked into {item.unpack}"
    return f"  {item.url}: {size}, {place}"


def parse_flags(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line, by default sys.argv; exit with code 2 for a wrong one."""
    parser = new_parser("python -m utils.data.fetch", "Fetch the files of a list.")
    parser.add_argument(
        "list",
        metavar="LIST",
        help="YAML file, or the name of one in data/fetch: coco, voc, yolov5",
    )
    parser.add_argument(
        "files", nargs="*", default=[], metavar="FILE", help="of the list; without any: all"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("datasets"), metavar="DIR", help="folder for them"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_command(main)
