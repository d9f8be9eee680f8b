"""The flags of every command as tables of the pages of flags, made from their settings.

    python -m tests.flag_page

writes them in both languages; docs/flag-words.yaml has what a flag means in Chinese, and
docs/flag-pages.yaml what stands around the tables.
`tests/unit/cli/test_public_flags.py` holds the pages against the flags.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from duet.utils.cli.absent_flags import DETECTION, EXPORT, TRAINING, VALIDATION
from duet.utils.cli.flags import GROUPS, Flag, flags_of
from duet.utils.cli.train_config import TrainConfig
from duet.utils.cli.val_config import ValConfig
from duet.utils.comparison.settings import compare_parser
from duet.utils.detect.config import DetectConfig
from duet.utils.export.config import ExportConfig
from duet.utils.project import PROJECT
from duet.utils.serve.config import ServeConfig
from duet.utils.yaml_files import parse_yaml

DOCS = PROJECT / "docs"
TRANSLATIONS, PAGES = DOCS / "flag-words.yaml", DOCS / "flag-pages.yaml"
BOTH = "both"  # backends honour a flag alike
# Flags that both backends do not honour alike, by field.
BACKENDS = {
    "amp": "PyTorch; OneFlow has no half precision: `auto` is float32, `bf16` and `fp16` an error",
    "layout": "PyTorch both; OneFlow contiguous only: `channels-last` is an error",
    "compile": "PyTorch; with OneFlow a line says that the plain step runs",
    "half_gradients": "PyTorch; an error with OneFlow",
    "half": "PyTorch on a GPU; elsewhere a line says that float32 is used",
}


class Words(NamedTuple):
    """What the pages say around their tables, in one language."""

    pages: Mapping[str, str]  # how each begins
    columns: Sequence[str]
    groups: Mapping[str, str]
    absent: str
    absent_columns: Sequence[str]
    translations: Mapping[str, str]  # of what the program says

    def said(self, text: str) -> str:
        """Return what the program says in this language; English where it is not translated."""
        text = " ".join(text.split())
        return self.translations.get(text, text)


LANGUAGES = {
    language: Words(
        **words,
        translations=parse_yaml(TRANSLATIONS.read_bytes()) if language == "zh" else {},
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
        "train-flags.md": page(words, "train", TrainConfig, TRAINING, BACKENDS),
        "val-flags.md": page(words, "val", ValConfig, VALIDATION, BACKENDS),
        "detect-flags.md": page(words, "detect", DetectConfig, DETECTION),
        "export-flags.md": page(words, "export", ExportConfig, EXPORT),
        "compare-flags.md": f"{words.pages['compare']}\n{parser_table(words, compare_parser())}",
        "serve-flags.md": page(words, "serve", ServeConfig, {}),
    }


def page(
    words: Words,
    name: str,
    settings: type,
    absent: Mapping[str, str],
    backends: Mapping[str, str] | None = None,
) -> str:
    """Return the page of a script: its flags by group, and those that are not there.

    backends: what a last column says of flags that both backends do not honour alike; None: no
    such column.
    """
    found = [group_table(words, settings, group, backends) for group in GROUPS]
    return "\n".join(
        [
            words.pages[name],
            *filter(None, found),
            *([absent_table(words, absent)] if absent else []),
        ]
    )


def table(columns: Sequence[str], rows: list[str]) -> str:
    """Return a table, with the end of its last line."""
    return "\n".join([f"| {' | '.join(columns)} |", "|" + len(columns) * "---|", *rows]) + "\n"


def group_table(
    words: Words, settings: type, group: str, backends: Mapping[str, str] | None
) -> str:
    """Return the table of a group's flags; "" if it has none."""
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    rows = [
        row(words, found, defaults[name], [] if backends is None else [backends.get(name, BOTH)])
        for name, found in flags_of(settings).items()
        if found.group == group
    ]
    if not rows:
        return ""
    columns = words.columns if backends is not None else words.columns[:3]
    title = words.groups[group]
    return f"{heading(title, group)}\n\n{table(columns, rows)}"


def heading(title: str, english: str) -> str:
    """Return a heading that other pages find by the anchor of the English one."""
    anchor = english.lower().replace(" ", "-")
    return f"## {title}" + (f" {{#{anchor}}}" if title.lower() != english.lower() else "")


def row(words: Words, found: Flag, default: Any, more: list[str]) -> str:
    """Return the line of a flag; more: cells at its end."""
    return _row(words, found.names, found.options["help"], default, *more)


def parser_table(words: Words, parser: argparse.ArgumentParser) -> str:
    """Return the table of a parser's flags, without --help."""
    rows = [
        _row(words, action.option_strings, str(action.help), action.default)
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    ]
    return table(words.columns[:3], rows)


def absent_table(words: Words, absent: Mapping[str, str]) -> str:
    """Return the public flags that are answered with what takes their place."""
    rows = [f"| `{name}` | {words.said(text)} |" for name, text in absent.items()]
    title = heading(words.absent, LANGUAGES["en"].absent)
    return f"{title}\n\n{table(words.absent_columns, rows)}"


def _row(words: Words, names: Sequence[str], meaning: str, default: Any, *more: str) -> str:
    flags = " ".join(f"`{name}`" for name in names)
    cells = flags, words.said(meaning), _default(default), *map(words.said, more)
    return f"| {' | '.join(' '.join(str(cell).split()) for cell in cells)} |"


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
