"""What blocks of the pages compute, for figures of the same."""

from __future__ import annotations

import contextlib
import io
import runpy
from functools import cache
from typing import Any

from duet.utils.project import PROJECT


@cache
def block(name: str) -> dict[str, Any]:
    """Run a block and return the functions and values that it leaves."""
    with contextlib.redirect_stdout(io.StringIO()):
        return runpy.run_path(str(PROJECT / "docs" / "blocks" / f"{name}.py"))
