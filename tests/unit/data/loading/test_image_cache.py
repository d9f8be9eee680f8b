"""Decoded images that processes share, and how much memory is free for them."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from duet.backend import system
from duet.backend.processes import Process
from duet.utils.data.loading import image_cache
from duet.utils.data.loading.batches import TrainBatches, TrainRecipe
from duet.utils.data.loading.image_cache import create_cache
from duet.utils.data.sources.samples import Sample, table_of
from duet.utils.errors import DatasetError
from duet.utils.memory import free_memory
from duet.utils.processes.world import World
from duet.utils.project import PROJECT
from tests.rank_threads import run_rank_threads

SIZES = [(3, 5), (7, 2), (4, 4)]


def image(number: int) -> np.ndarray:
    size = SIZES[number % 3]
    return np.arange(np.prod(size) * 3, dtype=np.uint8).reshape(*size, 3) + number


def never() -> np.ndarray:
    raise AssertionError("decoded again")


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_image_cache_decodes_once_and_returns_equal_pixels(kind):
    cache = create_cache(kind, SIZES, 0.5, "training")
    for number in (1, 0, 2):
        np.testing.assert_array_equal(cache.get(number, lambda n=number: image(n)), image(number))
    for number in range(3):
        kept = cache.get(number, never)
        np.testing.assert_array_equal(kept, image(number))
        assert kept.dtype == np.uint8
        assert not kept.flags.writeable


def test_disk_cache_without_pread_keeps_the_file_position(monkeypatch):
    """On Windows, loader workers share one position in the file that they inherit."""
    for name in ("pread", "pwrite"):
        monkeypatch.delattr(os, name)
    cache = create_cache("disk", SIZES, 0.5, "training")
    os.lseek(cache._file.descriptor, 17, os.SEEK_SET)
    for _ in range(2):
        np.testing.assert_array_equal(cache.get(1, lambda: image(1)), image(1))
    assert os.lseek(cache._file.descriptor, 0, os.SEEK_CUR) == 17


def test_image_cache_stops_at_its_limit_and_logs_the_count(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(image_cache, "free_memory", lambda: 2 * (4096 + 90))
    cache = create_cache("ram", SIZES, 0.5, "training")
    # A page of marks, then 45 and 42 bytes; the third image has no room.
    decoded = []
    for number in (0, 1, 2) * 2:
        cache.get(number, lambda n=number: decoded.append(n) or image(n))
    assert decoded == [0, 1, 2, 2]
    assert cache.extent == "part"
    assert "2 of 3 training images in memory" in caplog.text
    assert "the others are decoded each time" in caplog.text
    monkeypatch.setattr(image_cache, "free_memory", lambda: 2 * (4096 + 135))
    whole = create_cache("ram", SIZES, 0.5, "training")
    assert whole.extent == "all"
    assert "3 of 3 training images" in caplog.text


def test_disk_cache_leaves_no_file_or_open_descriptor(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))
    cache = create_cache("disk", SIZES, 0.5, "training")
    cache.get(0, lambda: image(0))
    assert list(tmp_path.iterdir()) == []
    del cache
    assert set(os.listdir("/proc/self/fd")) == before


def test_unwritable_cache_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    with pytest.raises(DatasetError, match="--cache disk: .*absent.*TMPDIR"):
        create_cache("disk", SIZES, 0.5, "training")


def test_full_disk_cache_error_gives_the_next_step(monkeypatch):
    cache = create_cache("disk", SIZES, 0.5, "training")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DatasetError, match="--cache disk: .*No space left.*leave --cache out"):
        cache.get(0, lambda: image(0))


@pytest.mark.parametrize("size", [(900, 1200), (720, 1279), (480, 641), (640, 480), (30, 20)])
def test_cached_image_is_no_larger_than_training_needs(size):
    sample = Sample(Path("image.jpg"), *size, np.zeros(0, np.int64), np.zeros((0, 4), np.float32))
    batches = TrainBatches(table_of([sample]), TrainRecipe(640, 1))
    ((height, width),) = batches.image_sizes()
    scale = min(1, 640 / max(size))  # a smaller image is enlarged when it is used
    assert height * width <= 1.05 * scale * size[0] * scale * size[1]
    assert max(height, width) == scale * max(size)


def write_group(folder, **files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"memory.{name}").write_text(f"{content}\n")


@pytest.fixture
def groups(monkeypatch, tmp_path):
    """The folder of control groups; this process is in /user/job."""
    monkeypatch.setattr(system, "CONTROL_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(system, "OWN_GROUPS", tmp_path / "self")
    (tmp_path / "self").write_text("9:name=systemd:/\n0::/user/job\n")
    return tmp_path / "cgroup"


STATISTICS = "anon 1\ninactive_file 300000\nactive_file 20000"


@pytest.mark.parametrize("group", [".", "user", "user/job"])
def test_free_memory_respects_limits_of_all_parent_groups(groups, group):
    assert free_memory() > 2**20
    write_group(groups / group, max="max", current=4000000, stat=STATISTICS)
    assert free_memory() > 2**20
    write_group(groups / group, max=5000000)
    assert free_memory() == 1320000


def test_hidden_cgroup_path_still_limits_free_memory(groups, tmp_path):
    write_group(groups, max=5000000, current=4000000, stat=STATISTICS)
    for own in ("0::/docker/0123\n", "0::/../job\n", ""):
        (tmp_path / "self").write_text(own)
        assert free_memory() == 1320000
    (tmp_path / "self").unlink()
    assert free_memory() == 1320000


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_ranks_of_one_machine_share_a_cache(kind, caplog):
    caplog.set_level(logging.INFO)
    local_ranks = (0, 1, 2, 0, 1)  # two machines

    def make(world):
        process = world.process._replace(local_rank=local_ranks[world.process.rank])
        return create_cache(kind, SIZES, 0.5, "training", world._replace(process=process))

    caches = run_rank_threads(5, make)
    assert len(caplog.records) == 2
    caches[2].get(0, lambda: image(0))
    caches[0] = None  # which the others outlive
    for cache in caches[1:3]:
        np.testing.assert_array_equal(cache.get(0, never), image(0))
    np.testing.assert_array_equal(caches[4].get(0, lambda: image(0) + 1), image(0) + 1)
    np.testing.assert_array_equal(caches[3].get(0, never), image(0) + 1)


# A second rank, by what the first has sent; prints the largest value of the first image.
SECOND = """
import sys
import numpy as np
from duet.backend.processes import Process
from duet.utils.processes.world import World
from duet.utils.data.loading.image_cache import create_cache

sent = np.array([sys.argv[2:]], np.int64)
world = World(Process(1, 1, 2), lambda mine: [sent if len(mine) else mine, mine])
cache = create_cache(sys.argv[1], [(3, 5), (7, 2)], 0.01, "training", world)
print(cache.get(0, lambda: np.full((3, 5, 3), 8, np.uint8)).max())
"""


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_processes_share_a_cache_and_refuse_another_file(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    sent = []

    def all_gather(mine):
        sent.extend(mine.ravel().tolist())
        return [mine, mine]

    def run_second(*sent):
        command = [sys.executable, "-c", SECOND, kind, *map(str, sent)]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)

    world = World(Process(0, 0, 2), all_gather)
    cache = create_cache(kind, [(3, 5), (7, 2)], 0.01, "training", world)
    assert run_second(*sent).stdout == "8\n"
    assert (cache.get(0, never) == 8).all()
    refused = run_second(*sent[:-1], sent[-1] + 1).stderr  # as where numbers are of other processes
    assert "is another file" in refused and "leave --cache out" in refused
    assert list(tmp_path.iterdir()) == []
