"""Threads for the work that runs in parallel with the network.

Before: nothing. After: `reading.py` decodes in them, `writing.py` draws and writes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from backend.cores import cores_of_rank

MOST_THREADS = 8  # of one kind; a GPU that needs more images a second is fed by several processes
NICENESS = 5
MOST_BYTES = 1 << 28  # of images that wait, apart from one that is larger alone


def num_threads() -> int:
    """Return how many threads to decode in, and as many to write in."""
    return min(cores_of_rank(), MOST_THREADS)


def background_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads give way to those that run the network."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=_give_way)


def _give_way() -> None:
    """Lower the priority of this thread; Linux has one for each thread of a process."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):  # a sandbox may forbid it: it is slower, not wrong
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + NICENESS
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
