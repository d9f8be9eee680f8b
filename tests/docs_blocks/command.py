"""The work of `python -m tests.docs_blocks`: run blocks, write what they print."""

from __future__ import annotations

from collections.abc import Sequence

import backend
from tests.docs_blocks.block import all_blocks
from tests.docs_blocks.outputs import write
from tests.docs_blocks.running import run_block


def main(names: Sequence[str]) -> int:
    """Run the blocks named, or all; return the exit code."""
    bound = backend.use()
    blocks = {block.name: block for block in all_blocks()}
    if unknown := set(names) - set(blocks):
        print(f"there is no block {', '.join(unknown)}; there are {', '.join(blocks)}")
        return 2
    for name in names or blocks:
        if blocks[name].backends[0] != bound:
            print(f"{name}: is written under YOLO_BACKEND={blocks[name].backends[0]}")
            continue
        write(blocks[name], run_block(blocks[name]))
        print(f"{name}: ran")
    return 0
