"""Freed memory stays with the process: what is asked for next costs no page faults."""

import subprocess
import sys

import pytest

FAULTS = """
import platform, resource, sys
import numpy as np
from utils.processes.host_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
for turn in range(4):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(16 * 2**20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, platform.libc_ver()[0])
"""


def faults(mode):
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True
    )
    count, library = done.stdout.split()
    if library != "glibc":
        pytest.skip(f"the C library is {library}")
    return int(count)


def test_memory_that_was_freed_is_used_again_without_page_faults():
    # Three arrays of 16 MiB are 12,288 pages of 4 KiB, or 24 of 2 MiB.
    assert faults("keep") < max(faults("plain") / 10, 10)
