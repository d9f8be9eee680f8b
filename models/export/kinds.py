"""Which kind of output the flags of export.py ask for, of the head that a model has.

Before: flags and weights. After: `recorded.py` makes the graph, `job.py` its metadata.
"""

from __future__ import annotations

from models.heads.base import Head
from utils.cli.export_config import ExportConfig
from utils.errors import UserError
from utils.export.formats import FORMATS, format_named
from utils.runtimes.outputs import KINDS


def kind_of_flags(head: type[Head], config: ExportConfig) -> str:
    """Return the kind of output; UserError for flags or formats that do not go with the head."""
    kind = head.exported_kind(config.nms, config.efficient_nms, config.letterbox)
    most = KINDS[kind].most
    if most is not None and config.top_all > most:
        raise UserError(
            f"--topk-all {config.top_all}: at most {most:,} masks per image are read; use "
            "a smaller number"
        )
    number = len(KINDS[kind].outputs)
    for name in config.include:
        if number > 1 and KINDS[kind].runs_here and not format_named(name).several_outputs:
            fit = ", ".join(row.name for row in FORMATS if row.several_outputs)
            raise UserError(
                f"--include {name}: files of this task have {number} outputs, and that format is "
                f"written with only one; formats with several: {fit}"
            )
    return kind
