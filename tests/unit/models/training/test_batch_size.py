"""--batch-size -1: what fits, by the peaks of measured steps."""

import numpy as np
import pytest

from models.training import batch_size
from models.training.batch_size import crowded_batch, fit_line, measure_sizes
from tests.out_of_memory import run_out
from utils.cli.train_config import TrainConfig, read_train_flags
from utils.errors import UserError
from utils.processes.world import ALONE


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
def test_a_line_through_the_largest_sizes_says_what_fits(peaks, budget, fitting):
    assert fit_line(peaks, budget) == fitting


def test_sizes_double_as_long_as_the_next_may_fit():
    asked = []

    def measure(images):
        asked.append(images)
        return 100 + 10 * images

    found = measure_sizes(measure, 100, 99, 189, ALONE)
    assert found == {0: 100, 1: 110, 2: 120, 4: 140, 8: 180}
    assert asked == [1, 2, 4, 8]
    assert list(measure_sizes(measure, 100, 3, 10_000, ALONE)) == [0, 1, 2]


def test_another_rank_without_memory_ends_the_measuring():
    class Full:
        def any(self, flag):
            return True

    assert measure_sizes(lambda images: images, 0, 64, 1000, Full()) == {0: 0}


def no_room():
    raise MemoryError


@pytest.mark.parametrize("fail", [no_room, run_out], ids=["of the step", "of the framework"])
def test_running_out_of_memory_bounds_what_fits(fail):
    def measure(images):
        return fail() if images > 2 else 10 * images

    peaks = measure_sizes(measure, 0, 64, 1000, ALONE)
    assert fit_line(peaks, 1000) == 2


def test_other_failures_end_the_measuring():
    with pytest.raises(RuntimeError, match="unrelated"):
        measure_sizes(lambda images: broken(), 0, 64, 1000, ALONE)


def broken():
    raise RuntimeError("unrelated")


def test_graphs_leave_half_of_the_memory_to_a_batch_without_one(monkeypatch):
    monkeypatch.setattr(batch_size.backend.device, "free_memory", lambda device: 1000)
    monkeypatch.setattr(batch_size.autograd, "compile_problem", lambda device: None)
    plain, compiled = TrainConfig(), TrainConfig(compile=True)
    assert batch_size.memory_budget(plain, "cuda:0", 50) == 850
    assert batch_size.memory_budget(compiled, "cuda:0", 50) == 450
    assert batch_size.memory_budget(compiled, "cpu", 50) == 850
    monkeypatch.setattr(batch_size.autograd, "compile_problem", lambda device: "no compiler")
    assert batch_size.memory_budget(compiled, "cuda:0", 50) == 850


def test_every_image_of_a_measured_batch_is_crowded():
    batch = crowded_batch(3, 64, 7)
    assert batch.images.shape == (3, 3, 64, 64) and batch.images.dtype == np.uint8
    assert np.bincount(batch.targets.image_index).tolist() == [7, 7, 7]
    assert (batch.targets.boxes_cxcywh_norm[:, 2:] > 0).all()
    np.testing.assert_array_equal(batch.images, crowded_batch(3, 64, 7).images)


@pytest.mark.parametrize(
    ("flags", "side"),
    [
        (["--img", "352"], 352),
        (["--multi-scale"], 480),
        (["--multi-scale", "--img", "352"], 544),
    ],
)
def test_images_are_as_large_as_multi_scale_draws_them(flags, side):
    config = TrainConfig(**read_train_flags(["--img", "320", *flags])[0])
    assert batch_size.largest_side(config, 32) == side  # 1.5 x 352 = 528, and 544 is on the grid


@pytest.mark.parametrize("value", ["0", "-2"])
def test_another_number_below_one_is_refused(value):
    with pytest.raises(UserError, match=f"--batch-size {value}"):
        TrainConfig(**read_train_flags(["--batch-size", value])[0])


def test_what_needs_the_number_refuses_to_measure():
    with pytest.raises(UserError, match="--micro-batch needs the number of images"):
        TrainConfig(**read_train_flags(["--batch-size", "-1", "--micro-batch", "4"])[0])


def test_any_number_of_processes_may_measure():
    for flags in ([], ["--quad"]):
        TrainConfig(**read_train_flags(["--batch-size", "-1", *flags])[0]).check_processes(3)
