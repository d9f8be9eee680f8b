"""Whether the batches, and what a model makes of them, fit into this machine's memory.

Before: flags and samples. After: `loader.py` makes the batches, `models/detector.py` their maps.
"""

from __future__ import annotations

from utils.data.loading.image_cache import free_memory
from utils.errors import UserError

SMALLER_BATCHES = "use a smaller --img or --batch-size, or fewer --workers"


def require_memory(needed: int, what: str, remedy: str = SMALLER_BATCHES) -> None:
    """Raise UserError unless this many bytes are free.

    Args:
        needed: bytes.
        what: begins the message: what they are for.
        remedy: ends it.
    """
    try:
        free = free_memory()
    except (OSError, UserError):  # the system does not tell
        return
    if needed > free:
        raise UserError(
            f"{what} take at least {needed / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB are "
            f"free; {remedy}"
        )
