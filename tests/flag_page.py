"""The flags of every command as tables of the pages of flags, made from their settings.

    python -m tests.flag_page

writes them in both languages; docs/flag-words.yaml has what a flag means in Chinese, and
docs/flag-pages.yaml what stands around the tables.
`tests/unit/cli/test_flags.py` holds the pages against the flags.
"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from duet.utils.cli.flags import GROUPS, Flag, flags_of
from duet.utils.cli.train_config import TrainConfig
from duet.utils.cli.val_config import ValConfig
from duet.utils.comparison.settings import compare_parser
from duet.utils.detect.config import DetectConfig
from duet.utils.export.config import ExportConfig
from duet.utils.files.yaml_files import parse_yaml
from duet.utils.project import PROJECT
from duet.utils.serve.config import ServeConfig

DOCS = PROJECT / "docs"
TRANSLATIONS, PAGES = DOCS / "flag-words.yaml", DOCS / "flag-pages.yaml"
# Flags that both backends do not honour alike, by field.
BACKENDS = {
    "amp": "OneFlow has no half precision: `auto` is float32, the others but `off` an error",
    "layout": "OneFlow has contiguous only: `channels-last` is an error",
    "compile": "OneFlow runs the plain step, and a line says so",
}


class Words(NamedTuple):
    """What the pages say around their tables, in one language."""

    pages: Mapping[str, str]  # how each begins
    columns: Sequence[str]
    groups: Mapping[str, str]
    stop: str  # between two sentences
    translations: Mapping[str, str]  # of what the program says

    def message(self, text: str) -> str:
        """Return what the program says in this language; English where it is not translated."""
        text = " ".join(text.split())
        return self.translations.get(text, text)


LANGUAGES = {
    language: Words(
        **words, translations=parse_yaml(TRANSLATIONS.read_bytes()) if language == "zh" else {}
    )
    for language, words in parse_yaml(PAGES.read_bytes()).items()
}


def pages() -> dict[Path, str]:
    """Return the pages of both languages, in Markdown."""
    return {
        DOCS / language / name: text
        for language, words in LANGUAGES.items()
        for name, text in pages_in(words).items()
    }


def pages_in(words: Words) -> dict[str, str]:
    """Return the pages of a language by their names."""
    return {
        "train-flags.md": page(words, "train", TrainConfig, titled=True),
        "val-flags.md": page(words, "val", ValConfig),
        "detect-flags.md": page(words, "detect", DetectConfig),
        "export-flags.md": page(words, "export", ExportConfig),
        "compare-flags.md": f"{words.pages['compare']}\n{parser_table(words, compare_parser())}",
        "serve-flags.md": page(words, "serve", ServeConfig),
    }


def page(words: Words, name: str, settings: type, titled: bool = False) -> str:
    """Return the page of a script: one table, in the order of its groups, perhaps with titles."""
    rows = []
    for group in GROUPS:
        found = rows_of(words, settings, group)
        rows += [f"| **{words.groups[group]}** | | |", *found] if titled and found else found
    return f"{words.pages[name]}\n{table(words.columns, rows)}"


def table(columns: Sequence[str], rows: list[str]) -> str:
    """Return a table, with the end of its last line."""
    return "\n".join([f"| {' | '.join(columns)} |", "|" + len(columns) * "---|", *rows]) + "\n"


def rows_of(words: Words, settings: type, group: str) -> list[str]:
    """Return the lines of a group's flags."""
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    return [
        _row(
            words, names_of(found), [found.options["help"], BACKENDS.get(name, "")], defaults[name]
        )
        for name, found in flags_of(settings).items()
        if found.group == group
    ]


def names_of(flag: Flag) -> Sequence[str]:
    """Return the names of a flag, with that of its opposite if it has one."""
    is_automatic = flag.options.get("action") is argparse.BooleanOptionalAction
    return (*flag.names, f"--no-{flag.names[0][2:]}") if is_automatic else flag.names


def parser_table(words: Words, parser: argparse.ArgumentParser) -> str:
    """Return the table of a parser's flags, without --help."""
    rows = [
        _row(words, action.option_strings, [str(action.help)], action.default)
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    ]
    return table(words.columns, rows)


def _row(words: Words, names: Sequence[str], meaning: Sequence[str], default: Any) -> str:
    flags = " ".join(f"`{name}`" for name in names)
    cells = flags, words.stop.join(map(words.message, filter(None, meaning))), _default(default)
    return f"| {' | '.join(' '.join(cell.split()) for cell in cells)} |"


def _default(default: Any) -> str:
    if default is None or default is False or default in ("", (), []):
        return ""
    if isinstance(default, Path) and default.is_relative_to(PROJECT):
        default = default.relative_to(PROJECT)
    return f"`{' '.join(map(str, default)) if isinstance(default, tuple) else default}`"


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
