"""Freed memory stays with the process: what is asked for next costs no page faults."""

import subprocess
import sys

import pytest

FAULTS = """
import platform, resource, sys
import numpy as np
from duet.utils.processes import host_memory
if sys.argv[1] != "plain":
    assert getattr(host_memory, sys.argv[1])() == (platform.libc_ver()[0] == "glibc")
for turn in range(4):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(int(sys.argv[2]) * 2**20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, platform.libc_ver()[0])
"""


def faults(mode, mebibytes=16):
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, mode, str(mebibytes)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    count, library = done.stdout.split()
    if library != "glibc":
        pytest.skip(f"the C library is {library}")
    return int(count)


@pytest.mark.parametrize("keep", ["keep_freed_memory", "keep_freed_images"])
def test_memory_that_was_freed_is_used_again_without_page_faults(keep):
    # Three arrays of 16 MiB are 12,288 pages of 4 KiB, or 24 of 2 MiB.
    assert faults(keep) < max(faults("plain") / 10, 10)


def test_a_worker_gives_back_what_a_huge_image_took():
    # Three arrays of 48 MiB are 72 pages even of 2 MiB, and all of them fault again.
    assert faults("keep_freed_images", 48) >= 72 > faults("keep_freed_memory", 48)
