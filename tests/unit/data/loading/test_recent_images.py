"""Images kept for a while: what comes back, what is overwritten, who shares it."""

import fcntl
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.rank_threads import run_rank_threads
from tests.unit.data.loading.test_image_cache import never
from utils.data.loading import memory
from utils.data.loading.recent_images import keep_recent_images
from utils.errors import UserError
from utils.files.project import PROJECT

SIZES = [(3, 5), (7, 2), (4, 4)]


def image(number: int) -> np.ndarray:
    size = SIZES[number % 3]
    return np.arange(np.prod(size) * 3, dtype=np.uint8).reshape(*size, 3) + number


def get(ring, number, decode=None):
    return ring.get(number, number, SIZES[number % 3], decode or (lambda: image(number)))


def test_an_image_is_there_until_another_takes_its_slot():
    ring = keep_recent_images(SIZES, num_slots=4)
    for number in range(4):
        np.testing.assert_array_equal(get(ring, number), image(number))
    for number in range(4):
        kept = get(ring, number, never)
        np.testing.assert_array_equal(kept, image(number))
        assert kept.dtype == np.uint8
    np.testing.assert_array_equal(get(ring, 5), image(5))  # takes the slot of 1
    np.testing.assert_array_equal(get(ring, 5, never), image(5))
    with pytest.raises(AssertionError, match="decoded again"):
        get(ring, 1, never)
    for number in (0, 2, 3):
        get(ring, number, never)


def test_another_sample_at_the_same_place_is_decoded():
    ring = keep_recent_images(SIZES, num_slots=4)
    get(ring, 0)
    for _ in range(2):
        np.testing.assert_array_equal(ring.get(0, 1, SIZES[1], lambda: image(1)), image(1))
    np.testing.assert_array_equal(ring.get(4, 1, SIZES[1], never), image(1))  # an epoch later


def test_an_image_that_is_no_block_of_memory_is_kept_as_it_is():
    ring = keep_recent_images(SIZES, num_slots=1)
    turned = image(1).transpose(1, 0, 2)
    ring.get(0, 1, (2, 7), lambda: turned)
    np.testing.assert_array_equal(ring.get(0, 1, (2, 7), never), turned)


# Dies in the middle of its image.
WRITER = """
import os, signal, sys
import numpy as np
from utils.data.loading.nameless_file import NamelessFile
from utils.data.loading.recent_images import RecentImages

ring = RecentImages(2, 48, NamelessFile(descriptor=int(sys.argv[1])))
real = os.pwrite

def cut_short(descriptor, content, start):
    if len(bytes(content)) == 48:
        real(descriptor, bytes(content)[:20], start)
        os.kill(os.getpid(), signal.SIGKILL)
    return real(descriptor, content, start)

os.pwrite = cut_short
ring.get(2, 2, (4, 4), lambda: np.full((4, 4, 3), 9, np.uint8))
"""


def test_half_an_image_of_a_process_that_died_is_not_seen():
    ring = keep_recent_images(SIZES, num_slots=2)
    np.testing.assert_array_equal(ring.get(0, 0, (4, 4), lambda: image(2)), image(2))
    descriptor = ring._file.descriptor
    command = [sys.executable, "-c", WRITER, str(descriptor)]
    done = subprocess.run(command, cwd=PROJECT, pass_fds=[descriptor], check=False)
    assert done.returncode == -signal.SIGKILL
    for number in (0, 2):
        with pytest.raises(AssertionError, match="decoded again"):
            ring.get(number, number, (4, 4), never)
    np.testing.assert_array_equal(ring.get(2, 2, (4, 4), lambda: image(2)), image(2))
    np.testing.assert_array_equal(ring.get(2, 2, (4, 4), never), image(2))


def test_a_reader_waits_for_the_writer_of_its_slot():
    ring = keep_recent_images(SIZES, num_slots=2)
    get(ring, 0)
    get(ring, 1)
    script = (
        "import fcntl, sys, time; fd = int(sys.argv[1]); fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(ring._file.descriptor)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[ring._file.descriptor]
    ) as writer:
        assert writer.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError):
            fcntl.lockf(ring._file.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)
        get(ring, 1, never)  # another slot is free
        writer.stdin.close()
        get(ring, 0, never)


def test_the_ranks_of_a_machine_share_a_ring():
    def rank(world):
        ring = keep_recent_images(SIZES, 4, world)
        if world.process.is_main:
            get(ring, 2)
        world.all_gather(np.zeros(0, np.int64))
        return get(ring, 2, never)

    for seen in run_rank_threads(2, rank):
        np.testing.assert_array_equal(seen, image(2))


def test_more_than_the_memory_that_is_free_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    with pytest.raises(UserError, match="--mosaic-window: 50 decoded images .* free; take fewer"):
        keep_recent_images(SIZES, 50, remedy="take fewer")
