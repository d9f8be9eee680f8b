"""Decoded images that processes share: what is kept, how much, and what the user is told."""

import logging
import os

import numpy as np
import pytest

from utils.data import image_cache
from utils.data.image_cache import create_cache, free_memory
from utils.data.image_files import DatasetError

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
    monkeypatch.setattr(image_cache, "_MEMORY_LIMITS", tmp_path / "cgroup")
    monkeypatch.setattr(image_cache, "_OWN_GROUPS", tmp_path / "self")
    (tmp_path / "self").write_text("9:name=systemd:/\n4:cpu,memory:/user/job\n0::/user/job\n")
    return tmp_path / "cgroup"


STATISTICS = "anon 1\ninactive_file 300000\nactive_file 20000"


@pytest.mark.parametrize("group", [".", "user", "user/job"])
def test_the_free_memory_respects_the_limit_of_any_group_above(groups, group):
    assert free_memory() > 2**20
    write_group(groups / group, max="max", current=4000000, stat=STATISTICS)
    assert free_memory() > 2**20
    write_group(groups / group, max=5000000)
    assert free_memory() == 1320000


@pytest.mark.parametrize("group", [".", "user", "user/job"])
def test_the_free_memory_respects_limits_of_version_1(groups, group):
    folder = groups / "memory" / group
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
