"""How well anchors fit boxes, and anchors that fit them better."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.anchors import fit_anchors, label_sizes, measure_fit
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import Sample
from duet.utils.data.sources.splits import load_split
from tests.environments import shared_path

GOLDEN = "golden/metrics/autoanchor"
# The public figures are means of float32 numbers, ours of float64: their sums over 4,000 labels
# differ by less than this.
ROUNDING = 1e-6


def golden_sizes():
    """(3941, 2) of BCCD's training labels at 640 px, as the public YOLOv5 reads them."""
    return np.load(shared_path(f"{GOLDEN}.npz"))["wh_img640"]


def made_sample(height, width, *sizes_norm):
    boxes = np.array([(0.5, 0.5, *size) for size in sizes_norm], np.float32).reshape(-1, 4)
    return Sample(Path("x.jpg"), height, width, np.zeros(len(boxes), np.int64), boxes)


def test_label_sizes_are_pixels_at_the_given_long_side():
    samples = [
        made_sample(100, 200, (0.5, 0.25), (1, 1)),
        made_sample(50, 50),
        made_sample(300, 150, (0.5, 0.5)),
    ]
    # 200 x 100 becomes 64 x 32, 150 x 300 becomes 32 x 64.
    assert label_sizes(samples, 64).tolist() == [[32, 8], [64, 32], [16, 32]]
    assert label_sizes(samples[1:2], 64).shape == label_sizes([], 64).shape == (0, 2)


def test_anchor_fit_matches_hand_computed_boxes():
    sizes, anchors = np.array([[10.0, 20], [100, 100]]), np.array([[10.0, 10], [20, 20], [50, 10]])
    # Likenesses: 1/2, 1/2, 1/5 of the first box; 1/10, 1/5, 1/10 of the second.
    fit = measure_fit(sizes, anchors, 4)
    assert fit == pytest.approx((1 / 2, 2 / 2, 0.5 / 2))
    assert measure_fit(sizes, anchors, 5.5) == pytest.approx((1, 4 / 2, 0.7 / 2))
    assert measure_fit(sizes, anchors, 2) == (0, 0, 0)  # exactly the factor is too far
    assert measure_fit(sizes[:0], anchors, 4) == (0, 0, 0)
    assert measure_fit(np.zeros((3, 2)), anchors, 4) == (0, 0, 0)
    assert measure_fit(np.zeros((3, 2)), np.zeros((2, 2)), 4) == (0, 0, 0)


def test_the_fit_of_millions_of_boxes_takes_little_more_than_they():
    sizes, anchors = np.tile([[16.0, 16], [4, 4], [90, 9]], (100_000, 1)), np.full((9, 2), 16.0)
    tracemalloc.start()
    fit = measure_fit(sizes, anchors, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fit == (1 / 3, 9 / 3, 1 / 3)
    assert peak < 100 * len(sizes)  # likeness to all nine alone has 72


def test_anchor_recall_on_bccd_matches_public_values():
    train = load_split(load_dataset(str(shared_path("data/bccd/bccd.yaml"))), "train")
    cases = json.loads(shared_path("golden/recipe/info.json").read_text())
    for case in cases["anchor_metric_bccd_train"]:
        sizes = label_sizes(train, case["img"])
        fit = measure_fit(sizes, np.array(case["anchors_px"]), case["thr"])
        assert fit.best_possible_recall == pytest.approx(case["best_possible_recall"], abs=ROUNDING)
        assert fit.anchors_per_target == pytest.approx(
            case["anchors_above_threshold"], abs=ROUNDING
        )


def test_anchor_fitness_on_bccd_matches_public_values():
    cases = json.loads(shared_path("golden/recipe/info.json").read_text())
    for group in cases["anchor_fitness_bccd_train"]:
        sizes = golden_sizes() * group["img"] / 640
        for case in group["cases"]:
            fit = measure_fit(sizes, np.array(case["anchors"]), group["thr"])
            assert fit.fitness == pytest.approx(case["fitness"], abs=ROUNDING)


@pytest.mark.parametrize(("number", "seed"), [(6, 0), (9, 1), (12, 0)])
def test_fitted_anchors_beat_public_fits_of_every_seed(number, seed):
    sizes = golden_sizes()
    fitted = measure_fit(sizes, fit_anchors(sizes, number, 4.0, seed), 4.0)
    public = [
        case
        for case in json.loads(shared_path(f"{GOLDEN}.json").read_text())["kmeans"]
        if case["img"] == 640 and case["n"] == number
    ]
    assert public and fitted.best_possible_recall == 1
    assert fitted.fitness > max(case["fitness"] for case in public)


def test_fitted_anchors_are_sorted_rounded_and_reproducible():
    sizes = np.array([[4, 4], [5, 4], [40, 41], [43, 40], [100, 30], [90, 33], [4, 5]], np.float64)
    anchors = fit_anchors(sizes, 3, 4.0, seed=1)
    assert anchors.tolist() == STORED
    assert np.all(np.diff(anchors.prod(axis=1)) >= 0)
    assert anchors.tolist() == np.round(anchors, 2).tolist()
    assert fit_anchors(sizes, 3, 4.0, seed=2).tolist() != STORED


# Stored from NumPy 2.2.6. Near the three groups of sizes, from 4 x 4 to 100 x 30.
STORED = [[4.47, 4.47], [42.94, 40.02], [99.89, 30.0]]


@pytest.mark.parametrize(
    "sizes",
    [[[20, 20]], [[20, 20]] * 50, [[1, 1]] * 50, [[0, 0]] * 3, [[5, 900]], [[3, 3], [500, 500]]],
)
@pytest.mark.parametrize("number", [1, 9])
def test_degenerate_boxes_still_give_usable_anchors(sizes, number):
    sizes = np.array(sizes, np.float64)
    anchors = fit_anchors(sizes, number, 4.0, seed=0)
    assert anchors.shape == (number, 2) and np.isfinite(anchors).all() and anchors.min() >= 2
    if sizes.min() > 0 and number > 1:
        assert measure_fit(sizes, anchors, 4.0).best_possible_recall == 1
