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
    assert "2 of 3 training images in memory" in caplog.text
    assert "the others are decoded each time" in caplog.text
    monkeypatch.setattr(image_cache, "free_memory", lambda: 2 * (4096 + 135))
    assert create_cache("ram", SIZES, 0.5, "training").holds(2)
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


def test_the_free_memory_respects_the_limit_of_a_container(monkeypatch, tmp_path):
    monkeypatch.setattr(image_cache, "_MEMORY_LIMITS", tmp_path)
    machine = free_memory()
    assert machine > 2**20
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("4000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 300000\nactive_file 20000\n")
    assert free_memory() == 1320000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory() > 2**20
