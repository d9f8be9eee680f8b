"""What all ranks find arrives as a single process would pass it on."""

import numpy as np
import pytest

from duet.models.heads.anchor.head import AnchorHead
from duet.models.heads.mask.head import MaskHead
from duet.utils.evaluation.collector import Collector, FoundImage
from duet.utils.geometry.detections import Detections, Ragged, Segmentations
from tests.presence_head import PresenceHead, Present
from tests.rank_threads import run_rank_threads


def detections(count, seed=0):
    generator = np.random.default_rng(seed)
    return Detections(
        generator.random((count, 4), np.float32),
        generator.random(count, np.float32),
        generator.integers(0, 5, count),
    )


def present(count, seed=0):
    return Present(np.random.default_rng(seed).random(count, np.float32))


def segmentations(count, seed=0):
    generator = np.random.default_rng(seed)
    runs = [generator.integers(0, 1 << 32, length, np.uint32) for length in range(count)]
    return Segmentations(*detections(count, seed), Ragged.of(runs, np.uint32))


def leaves(found):
    """All arrays of what is found, those of rows of different lengths too."""
    return [x for field in found for x in (field if isinstance(field, Ragged) else [field])]


@pytest.mark.parametrize(
    ("head", "found_by"),
    [(AnchorHead, detections), (PresenceHead, present), (MaskHead, segmentations)],
)
@pytest.mark.parametrize("counts", [[2, 0, 3, 1], [0, 0, 0, 0]])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_collected_images_keep_single_process_order(head, found_by, counts, ranks):
    """Two batches of two images; a third rank has none."""
    images = [
        FoundImage(number // 2, number, found_by(count, number))
        for number, count in enumerate(counts)
    ]

    def work(world):
        received = []
        collector = Collector(head.nothing_found, world, received.append)
        for batch in range(2):
            for image in world.process.shard(images[2 * batch : 2 * batch + 2]):
                collector.add_image(image)
            collector.end_batch(np.array([1.0, 3.0]) * (batch + 1) * (world.process.rank + 1))
        return collector.finish(), received

    for losses, received in run_rank_threads(ranks, work):
        np.testing.assert_allclose(losses, np.array([1.5, 4.5]) * sum(range(ranks + 1)))
        assert [image[:2] for image in received] == [image[:2] for image in images]
        for found, wanted in zip(received, images, strict=True):
            assert type(found.found) is type(wanted.found)
            for one, other in zip(leaves(found.found), leaves(wanted.found), strict=True):
                assert one.dtype == other.dtype and np.array_equal(one, other)
