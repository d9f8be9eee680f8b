"""Decoded images that processes share: what is kept, how much, and what the log says."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.rank_threads import run_rank_threads
from utils.data.loading import image_cache, memory
from utils.data.loading.image_cache import create_cache
from utils.data.loading.memory import free_memory
from utils.errors import DatasetError
from utils.files.project import PROJECT

SIZES = [(3, 5), (7, 2), (4, 4)]


def image(number: int) -> np.ndarray:
    return np.arange(np.prod(SIZES[number]) * 3, dtype=np.uint8).reshape(*SIZES[number], 3) + number


def never() -> np.ndarray:
    raise AssertionError("decoded again")


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_an_image_is_decoded_once_and_comes_back_as_it_was(kind):
    cache = create_cache(kind, SIZES, 0.5, "training")
    for number in (1, 0, 2):
        np.testing.assert_array_equal(cache.get(number, lambda n=number: image(n)), image(number))
    for number in range(3):
        kept = cache.get(number, never)
        np.testing.assert_array_equal(kept, image(number))
        assert kept.dtype == np.uint8
        assert not kept.flags.writeable


def test_images_are_kept_up_to_the_limit_and_the_line_says_so(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(image_cache, "free_memory", lambda: 2 * (4096 + 90))
    cache = create_cache("ram", SIZES, 0.5, "training")
    # A page of marks, then 45 and 42 bytes; the third image has no room.
    assert [cache.holds(number) for number in range(3)] == [True, True, False]
    assert cache.extent == "part"
    assert "2 of 3 training images in memory" in caplog.text
    assert "the others are decoded each time" in caplog.text
    monkeypatch.setattr(image_cache, "free_memory", lambda: 2 * (4096 + 135))
    whole = create_cache("ram", SIZES, 0.5, "training")
    assert whole.holds(2) and whole.extent == "all"
    assert "3 of 3 training images" in caplog.text


def test_an_image_above_the_limit_does_not_keep_the_later_ones_out(monkeypatch):
    monkeypatch.setattr(image_cache, "free_memory", lambda: 2 * (4096 + 45 + 48))
    cache = create_cache("ram", [SIZES[0], (10, 10), SIZES[2]], 0.5, "training")
    assert [cache.holds(number) for number in range(3)] == [True, False, True]
    for number in (0, 2):
        np.testing.assert_array_equal(cache.get(number, lambda n=number: image(n)), image(number))
    for number in (0, 2):
        np.testing.assert_array_equal(cache.get(number, never), image(number))


def test_no_space_for_any_image_is_a_line_and_no_cache(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(image_cache, "free_memory", lambda: 0)
    cache = create_cache("ram", SIZES, 0.5, "validation")
    assert not any(cache.holds(number) for number in range(3))
    assert cache.extent == "none"
    assert "0 of 3 validation images" in caplog.text


def test_a_disk_cache_leaves_no_file_and_no_open_descriptor(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))
    cache = create_cache("disk", SIZES, 0.5, "training")
    cache.get(0, lambda: image(0))
    assert list(tmp_path.iterdir()) == []
    del cache
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_cannot_be_written_to_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    with pytest.raises(DatasetError, match="--cache disk: .*absent.*TMPDIR"):
        create_cache("disk", SIZES, 0.5, "training")


def test_a_full_disk_is_an_error_with_the_next_step(monkeypatch):
    cache = create_cache("disk", SIZES, 0.5, "training")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DatasetError, match="--cache disk: .*No space left.*leave --cache out"):
        cache.get(0, lambda: image(0))


def write_group(folder, **files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"memory.{name}").write_text(f"{content}\n")


@pytest.fixture
def groups(monkeypatch, tmp_path):
    """The folder of control groups; this process is in /user/job of both versions."""
    monkeypatch.setattr(memory, "_LIMITS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "self")
    (tmp_path / "self").write_text("9:name=systemd:/\n4:cpu,memory:/user/job\n0::/user/job\n")
    return tmp_path / "cgroup"


STATISTICS = "anon 1\ninactive_file 300000\nactive_file 20000"


@pytest.mark.parametrize("content", [None, "", "MemTotal: 5 kB\n", "MemAvailable: much kB\n"])
def test_without_proc_the_free_memory_is_not_known(tmp_path, monkeypatch, content):
    path = tmp_path / "meminfo"
    if content is not None:
        path.write_text(content)
    monkeypatch.setattr(memory, "_MEMORY", path)
    with pytest.raises(DatasetError, match=r"--cache ram: .*meminfo does not state.*--cache disk"):
        create_cache("ram", [(3, 5)], 0.5, "training")


@pytest.mark.parametrize("group", [".", "user", "user/job"])
def test_the_free_memory_respects_the_limit_of_any_group_above(groups, group):
    assert free_memory() > 2**20
    write_group(groups / group, max="max", current=4000000, stat=STATISTICS)
    assert free_memory() > 2**20
    write_group(groups / group, max=5000000)
    assert free_memory() == 1320000


def test_the_free_memory_respects_limits_of_version_1(groups):
    folder = groups / "memory" / "user"
    # What belongs to groups below counts as used too, and is in the totals alone.
    statistics = "inactive_file 7\ntotal_inactive_file 300000\ntotal_active_file 20000"
    write_group(folder, limit_in_bytes=2**63 - 4096, usage_in_bytes=4000000, stat=statistics)
    assert free_memory() > 2**20
    write_group(folder, limit_in_bytes=5000000)
    assert free_memory() == 1320000


def test_of_several_limits_the_one_that_leaves_least_counts(groups):
    write_group(groups, max=8000000, current=7500000, stat="")
    write_group(groups / "user", max=9000000, current=1000, stat="")
    write_group(groups / "user/job", max=5000000, current=4000000, stat="")
    assert free_memory() == 500000
    write_group(groups / "user", current=9500000)
    assert free_memory() == 0


def test_a_container_that_does_not_see_its_own_path_still_sees_its_limit(groups, tmp_path):
    write_group(groups, max=5000000, current=4000000, stat=STATISTICS)
    for own in ("0::/docker/0123\n", "0::/../job\n", ""):
        (tmp_path / "self").write_text(own)
        assert free_memory() == 1320000
    (tmp_path / "self").unlink()
    assert free_memory() == 1320000


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_the_ranks_of_each_machine_have_one_cache(kind, caplog):
    caplog.set_level(logging.INFO)
    local_ranks = (0, 1, 2, 0, 1)  # two machines

    def make(world):
        process = world.process._replace(local_rank=local_ranks[world.process.rank])
        return create_cache(kind, SIZES, 0.5, "training", world._replace(process=process))

    caches = run_rank_threads(5, make)
    assert len(caplog.records) == 2
    caches[2].get(0, lambda: image(0))
    for cache in caches[:3]:
        np.testing.assert_array_equal(cache.get(0, never), image(0))
    np.testing.assert_array_equal(caches[4].get(0, lambda: image(0) + 1), image(0) + 1)
    np.testing.assert_array_equal(caches[3].get(0, never), image(0) + 1)


def test_the_limit_is_taken_once_by_the_first_of_a_machine(monkeypatch):
    free = iter([2 * (4096 + 90)])
    monkeypatch.setattr(image_cache, "free_memory", lambda: next(free))

    def make_and_ask(world):
        cache = create_cache("ram", SIZES, 0.5, "training", world)
        return [cache.holds(number) for number in range(3)]

    assert run_rank_threads(3, make_and_ask) == [[True, True, False]] * 3


# Rank and what the first told, if this is not the first. Prints what it tells and what it sees.
RANK = """
import sys
import numpy as np
from backend.processes import Process
from utils.processes.world import World
from utils.data.loading.image_cache import create_cache

kind, rank, *told = sys.argv[1:]
place = Process(int(rank), int(rank), 2)

def all_gather(mine):
    if len(mine) == 0:  # the first one waits for the others with it
        return [mine, mine]
    print(*mine[0], flush=True)
    first = np.array([[int(number) for number in told]], np.int64) if told else mine
    return [first, mine]

cache = create_cache(kind, [(3, 5), (7, 2)], 0.01, "training", World(place, all_gather))
for line in sys.stdin:
    seen = cache.get(int(line), lambda: np.full((3, 5, 3), 7 + place.rank, np.uint8))
    print(seen.max(), flush=True)
"""


def start_rank(kind, rank, told, folder):
    command = [sys.executable, "-c", RANK, kind, str(rank), *told]
    return subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip


def ask(process, number=0) -> int:
    process.stdin.write(f"{number}\n")
    process.stdin.flush()
    return int(process.stdout.readline())


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_processes_share_a_cache_that_outlives_the_first_and_leaves_nothing(kind, tmp_path):
    with start_rank(kind, 0, [], tmp_path) as first:
        told = first.stdout.readline().split()
        with start_rank(kind, 1, told, tmp_path) as second:
            assert second.stdout.readline().split()[0] == "0"
            assert ask(second) == 8
            assert ask(first) == 8  # as the second one made it
            first.kill()
            first.wait()
            assert ask(second) == 8
            second.kill()
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_opened_is_an_error_with_the_next_step(tmp_path):
    with start_rank("ram", 0, [], tmp_path) as first:
        told = first.stdout.readline().split()
        told[-1] = str(int(told[-1]) + 1)  # another file: its process number was given anew
        with start_rank("ram", 1, told, tmp_path) as second:
            _, errors = second.communicate()
        first.kill()
    assert "process" in errors and "another file" in errors and "leave --cache out" in errors
