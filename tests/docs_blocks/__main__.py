"""Runs the blocks of the pages, docs/blocks, and writes what they print.

    python -m tests.docs_blocks [NAME ...]    # YOLO_BACKEND=oneflow for blocks of OneFlow

A block is NAME.py, or NAME.sh with commands of the project. It runs in an empty folder, in which
scripts, models/ and data/ are those of the project. What it prints becomes NAME.out and, of a
Python block, its dictionary `values` becomes NAME.json. CONTRIBUTING.md has the lines that a block
begins with. `tests/unit/docs/test_blocks.py` holds the files against what blocks print.
"""

from __future__ import annotations

import sys

from duet import backend

backend.use()

# What blocks need is written with tensors: it can be imported once a backend is in use.
from tests.docs_blocks.blocks import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
