"""--batch-size -1: what fits, by the peaks of measured steps."""

import numpy as np
import pytest

from duet.models.training import batch_size
from duet.models.training.batch_size import crowded_batch, fit_line, measure_sizes
from duet.utils.processes.world import ALONE
from tests.frameworks import run_out_of_memory


@pytest.mark.parametrize(
    ("peaks", "budget", "fitting"),
    [
        ({0: 50, 1: 110, 2: 120, 4: 140}, 180, 8),  # 100 and 10 an image
        ({0: 50, 1: 110, 2: 120, 4: 140}, 179, 7),
        ({0: 50, 1: 500, 2: 120}, 130, 12),  # no slope: one byte an image
        ({0: 10, 1: 20}, 100, 9),
        ({0: 10, 1: 101}, 100, 0),
        ({0: 10, 1: 90, 2: 101}, 100, 1),
        ({0: 10}, 5, 1),
    ],
)
def test_batch_size_follows_a_line_through_measured_peaks(peaks, budget, fitting):
    assert fit_line(peaks, budget) == fitting


def test_measured_sizes_double_while_they_fit_on_all_ranks():
    asked = []

    def measure(images):
        asked.append(images)
        return 100 + 10 * images

    found = measure_sizes(measure, 100, 99, 189, ALONE)
    assert found == {0: 100, 1: 110, 2: 120, 4: 140, 8: 180}
    assert asked == [1, 2, 4, 8]
    assert list(measure_sizes(measure, 100, 3, 10_000, ALONE)) == [0, 1, 2]
    full = ALONE._replace(all_gather=lambda own: [own, np.array([True])])
    assert measure_sizes(measure, 0, 64, 1000, full) == {0: 0}


def test_out_of_memory_bounds_the_fit_and_others_raise():
    peaks = measure_sizes(lambda n: run_out_of_memory() if n > 2 else 10 * n, 0, 64, 1000, ALONE)
    assert fit_line(peaks, 1000) == 2
    with pytest.raises(ZeroDivisionError):
        measure_sizes(lambda images: images // 0, 0, 64, 1000, ALONE)


def test_cuda_graphs_halve_the_memory_budget(monkeypatch):
    monkeypatch.setattr(batch_size.backend.device, "free_memory", lambda device: 1000)
    assert batch_size.memory_budget("cuda:0", 50, may_have_graphs=False) == 850
    assert batch_size.memory_budget("cuda:0", 50, may_have_graphs=True) == 450


def test_measured_batch_is_crowded_in_every_image():
    batch = crowded_batch(3, 64, 7)
    assert batch.images.shape == (3, 3, 64, 64) and batch.images.dtype == np.uint8
    assert np.bincount(batch.targets.image_index).tolist() == [7, 7, 7]
    assert (batch.targets.boxes_cxcywh_norm[:, 2:] > 0).all()
    np.testing.assert_array_equal(batch.images, crowded_batch(3, 64, 7).images)
