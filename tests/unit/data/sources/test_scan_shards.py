"""Labels scanned by several ranks: each ends with what a single process finds."""

import os

import cv2
import numpy as np
import pytest

from tests.equal_samples import assert_same_samples
from tests.rank_threads import RankFailures, run_rank_threads
from utils.data.sources import labels
from utils.data.sources.image_files import list_images
from utils.data.sources.labels import scan_samples, unwatched
from utils.data.sources.scan_shards import scan_shared
from utils.errors import DatasetError

GOOD, TWICE, BROKEN = "1 0.5 0.5 0.2 0.2\n", "0 0.5 0.5 0.2 0.2\n" * 2, "1 0.5\n"
# Broken ones first and last: some shards hold nothing usable.
POLYGON = "2 0.1 0.1 0.3 0.1 0.2 0.4\n"
LABELS = (BROKEN, BROKEN, GOOD, TWICE, None, "", GOOD + "2 0.4 0.4 0.1 0.1\n", GOOD, BROKEN)
WITH_POLYGONS = (*LABELS, GOOD + POLYGON, POLYGON, GOOD)


@pytest.fixture
def images(tmp_path):
    return write_images(tmp_path, LABELS)


def write_images(tmp_path, texts):
    folder = tmp_path / "images"
    folder.mkdir()
    (tmp_path / "labels").mkdir()
    for number, text in enumerate(texts):
        image = np.zeros((8 + number, 20 - number, 3), np.uint8)
        cv2.imwrite(str(folder / f"größe {number}.png"), image)
        if text is not None:
            (tmp_path / f"labels/größe {number}.txt").write_text(text)
    (folder / os.fsdecode(b"cut caf\xe9\n.png")).write_bytes(b"no image")
    return list_images([folder])


def assert_same_report(found, expected):
    assert found.problems == expected.problems
    assert_same_samples(found.samples, expected.samples)


@pytest.mark.parametrize("world_size", [2, 5])
def test_every_rank_has_the_polygons_of_all(tmp_path, world_size):
    images = write_images(tmp_path, WITH_POLYGONS)
    expected = scan_samples(images, 3)
    assert sum(sample.polygons_norm is not None for sample in expected.samples) == 2
    for report in run_rank_threads(
        world_size, lambda world: scan_shared(images, 3, world, unwatched)
    ):
        assert_same_report(report, expected)


@pytest.mark.parametrize("world_size", [1, 2, 3, 12])
def test_every_rank_has_the_report_of_a_single_process(images, world_size):
    expected = scan_samples(images, 3)
    assert len(expected.samples) == 6 and len(expected.problems) == 5

    def scan(world):
        return scan_shared(images, 3, world, unwatched)

    for report in run_rank_threads(world_size, scan):
        assert_same_report(report, expected)


def test_each_image_is_read_by_one_rank_alone(images, monkeypatch):
    read, read_image_size = [], labels.read_image_size

    def counting(path, max_pixels):
        read.append(path)
        return read_image_size(path, max_pixels)

    def scan(world):
        return scan_shared(images, 3, world, lambda: progress.append(world.process.rank))

    progress = []
    monkeypatch.setattr(labels, "read_image_size", counting)
    run_rank_threads(3, scan)
    assert sorted(read) == sorted(images)
    assert sorted(progress) == [0] * 4 + [1] * 3 + [2] * 3  # each rank reported its own images


@pytest.mark.parametrize("chosen", [slice(0, 2), slice(4, 6)])  # none usable; none with an object
def test_what_a_single_process_refuses_all_ranks_refuse_alike(images, chosen):
    few = images[1:][chosen]  # without cut.png
    with pytest.raises(DatasetError) as single:
        scan_samples(few, 3)

    def scan(world):
        return scan_shared(few, 3, world, unwatched)

    with pytest.raises(RankFailures) as caught:
        run_rank_threads(2, scan)
    assert [str(error) for error in caught.value.errors] == [str(single.value)] * 2


@pytest.mark.parametrize("other", [slice(1, None), slice(None, None, -1)])
def test_ranks_with_different_images_are_an_error(images, other):
    def scan(world):
        mine = images[other] if world.process.rank else images
        return scan_shared(mine, 3, world, unwatched)

    with pytest.raises(RankFailures) as caught:
        run_rank_threads(2, scan)
    for error in caught.value.errors:
        assert isinstance(error, DatasetError)
        assert "processes found different images" in str(error)
