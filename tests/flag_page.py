"""The flags of train.py, val.py and export.py as tables of two pages, made from their settings.

    python -m tests.flag_page

writes docs/en/train-flags.md and docs/en/export-flags.md. `tests/unit/cli/test_public_flags.py`
holds the pages against the flags.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utils.cli.absent_flags import EXPORT, TRAINING, VALIDATION
from utils.cli.export_config import ExportConfig
from utils.cli.flags import GROUPS, Flag, flags_of
from utils.cli.train_config import TrainConfig
from utils.cli.val_config import ValConfig
from utils.files.project import PROJECT

DOCS = PROJECT / "docs" / "en"
# Flags that both backends do not honour alike, by field.
BACKENDS = {
    "amp": "PyTorch; OneFlow has no half precision: an error",
    "layout": "PyTorch both; OneFlow contiguous only: `channels-last` is an error",
    "compile": "PyTorch; with OneFlow a line says that the plain step runs",
    "half_gradients": "PyTorch; an error with OneFlow",
    "half": "PyTorch on a GPU; elsewhere a line says that float32 is used",
}
HEADING = """# Flags of train.py and val.py

Made from the flags themselves (`python -m tests.flag_page`). They are those of YOLOv5, and
some more. A flag works on both backends unless the last column says otherwise. The two scripts
refuse what they do not know; none is parsed and ignored.
"""


EXPORT_HEADING = """# Flags of export.py

Made from the flags themselves (`python -m tests.flag_page`), with the meanings of the public
YOLOv5. docs/en/export.md says what the formats can do. What export.py does not know is refused.
"""
SCRIPTS = (("train.py", TrainConfig, TRAINING), ("val.py", ValConfig, VALIDATION))


def pages() -> dict[Path, str]:
    """Return the pages, in Markdown."""
    parts = [HEADING]
    for title, settings, absent in SCRIPTS:
        parts += [f"## {title}\n", *tables(settings, absent, BACKENDS)]
    export = [EXPORT_HEADING, *tables(ExportConfig, EXPORT)]
    return {
        DOCS / "train-flags.md": "\n".join(parts),
        DOCS / "export-flags.md": "\n".join(export),
    }


def tables(
    settings: type, absent: Mapping[str, str], backends: Mapping[str, str] | None = None
) -> list[str]:
    """Return the tables of a script: its flags by group, and those that are not there.

    backends: what a last column says of flags that both backends do not honour alike; None: no
    such column.
    """
    found = [group_table(settings, group, backends) for group in GROUPS]
    return [*filter(None, found), absent_table(absent)]


def group_table(settings: type, group: str, backends: Mapping[str, str] | None) -> str:
    """Return the table of a group's flags; "" if it has none."""
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    titles = ["flag", "meaning", "default"] + (["backend"] if backends is not None else [])
    rows = [
        row(found, defaults[name], [] if backends is None else [backends.get(name, "both")])
        for name, found in flags_of(settings).items()
        if found.group == group
    ]
    if not rows:
        return ""
    heading = f"### {group[0].upper()}{group[1:]}\n\n| {' | '.join(titles)} |"
    return "\n".join([heading, "|" + len(titles) * "---|", *rows]) + "\n"


def row(found: Flag, default: Any, more: list[str]) -> str:
    """Return the line of a flag; more: cells at its end."""
    flags = " ".join(f"`{flag}`" for flag in found.names)
    cells = flags, found.options["help"], _default(default), *more
    return f"| {' | '.join(' '.join(str(cell).split()) for cell in cells)} |"


def absent_table(absent: Mapping[str, str]) -> str:
    """Return the public flags that are answered with what takes their place."""
    heading = "### Public flags that are not there\n\n| flag | in its place |\n|---|---|"
    return "\n".join([heading, *(f"| `{name}` | {text} |" for name, text in absent.items())]) + "\n"


def _default(default: Any) -> str:
    if default is None or default is False or default in ("", ()):
        return ""
    if isinstance(default, Path) and default.is_relative_to(PROJECT):
        default = default.relative_to(PROJECT)
    return f"`{' '.join(map(str, default)) if isinstance(default, tuple) else default}`"


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
