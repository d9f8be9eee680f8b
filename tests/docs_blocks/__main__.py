"""Runs pages as the site shows them, and writes what their blocks print into docs/blocks.

    python -m tests.docs_blocks [NAME ...]    # YOLO_BACKEND=oneflow for blocks of OneFlow

NAME is a page below docs/en, as `api` or `tutorials/02-data`, or a block. What a block prints
becomes NAME.out and, of a Python block, its dictionary `values` becomes NAME.json. CONTRIBUTING.md
has the lines that a block begins with. `tests/site/test_copied_pages.py` tests the same.
"""

import sys
import tempfile
from pathlib import Path

from duet import backend

backend.use()

# What blocks need is written with tensors: it can be imported once a backend is in use.
from duet.utils.project import PROJECT  # noqa: E402
from tests.docs_blocks.pages import (  # noqa: E402
    BlockError,
    make_missing_outputs,
    pages_of,
    read_page,
    run_page,
    write_outputs,
)
from tests.environments import build_site  # noqa: E402


def main(names: list[str]) -> int:
    """Run pages; return the exit code."""
    with tempfile.TemporaryDirectory() as site:
        make_missing_outputs()
        done = build_site(PROJECT, Path(site))  # values that are not there yet are warnings
        if not (Path(site) / "index.html").exists():
            print(done.stdout + done.stderr)
            return 1
        try:
            for name in pages_of(names):
                page = read_page(name, Path(site))
                run_page(page)
                write_outputs(page)
                print(f"{name}: ran", flush=True)
        except BlockError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
