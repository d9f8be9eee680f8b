"""Where Linux takes this process's memory from. Before: `binding` chose the node."""

from __future__ import annotations

import ctypes
import os
import platform

MPOL_PREFERRED = 1  # of linux/mempolicy.h
# set_mempolicy has no wrapper in the C library, and libnuma is not everywhere.
SYSTEM_CALLS = {"x86_64": 238, "aarch64": 237}
MASK_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)


def prefer_node(node: int) -> str:
    """Take memory from a node while it has some; return why it could not be set, or "".

    It holds for the calling thread, for threads and processes that it starts later, and for pages
    that are first touched later. When the node is full, memory comes from others: with a strict
    binding the run would be killed while most of the machine's memory is free.
    """
    number = SYSTEM_CALLS.get(platform.machine())
    if number is None:
        return f"its system call is not known on {platform.machine()}"
    words = node // MASK_BITS + 1
    mask = (ctypes.c_ulong * words)()
    mask[node // MASK_BITS] = 1 << node % MASK_BITS
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than this number.
    if libc.syscall(number, MPOL_PREFERRED, mask, words * MASK_BITS + 1) == 0:
        return ""
    return f"the system refuses it: {os.strerror(ctypes.get_errno())}"
