"""The flags of train.py and val.py as tables of a page, made from their settings.

    python -m tests.flag_page

writes docs/train-flags.md. `tests/unit/cli/test_public_flags.py` holds the page against the flags.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utils.cli.absent_flags import TRAINING, VALIDATION
from utils.cli.flags import GROUPS, Flag, flags_of
from utils.cli.train_config import TrainConfig
from utils.cli.val_config import ValConfig
from utils.files.project import PROJECT

PAGE = PROJECT / "docs" / "train-flags.md"
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


def page() -> str:
    """Return the page, in Markdown."""
    parts = [HEADING]
    for title, settings, absent in (
        ("train.py", TrainConfig, TRAINING),
        ("val.py", ValConfig, VALIDATION),
    ):
        parts.append(f"## {title}\n")
        parts += [table for group in GROUPS if (table := group_table(settings, group))]
        parts.append(absent_table(absent))
    return "\n".join(parts)


def group_table(settings: type, group: str) -> str:
    """Return the table of a group's flags; "" if it has none."""
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    rows = [
        row(name, found, defaults[name])
        for name, found in flags_of(settings).items()
        if found.group == group
    ]
    if not rows:
        return ""
    heading = f"### {group[0].upper()}{group[1:]}\n\n| flag | meaning | default | backend |"
    return "\n".join([heading, "|---|---|---|---|", *rows]) + "\n"


def row(name: str, found: Flag, default: Any) -> str:
    """Return the line of a flag."""
    flags = " ".join(f"`{flag}`" for flag in found.names)
    cells = flags, found.options["help"], _default(default), BACKENDS.get(name, "both")
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
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
