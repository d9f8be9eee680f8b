"""Equal work, losses side by side, and ratios with what they are worth."""

import pytest

from duet.utils.comparison.document import HALF_TOLERANCE, TOLERANCE, differences, loss_gap
from duet.utils.comparison.statistics import epoch_ratios, process_ratios, verdict


def run(cell="torch", work=None, losses=((1.0, 2.0, 3.0),), seconds=(), number=1, process=1.0):
    return {
        "cell": cell,
        "round": number,
        "framework": "1.0",
        "work": work or {"precision": "float32"},
        "losses": losses,
        "process_seconds": process,
        "epochs": [
            {"epoch": epoch, "counted": epoch > 0, "seconds": value}
            for epoch, value in enumerate(seconds)
        ],
    }


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"precision": "float16"}, "precision: float32 in torch round 1, float16 in oneflow"),
        ({"gradient_norm_limit": None}, "gradient_norm_limit: 10.0 in torch round 1, None"),
        ({"hyperparameters": {"mosaic": 0.0}}, "hyperparameters.mosaic: 1.0 in torch"),
        ({"batches_sha1": "ab"}, "batches_sha1: cd in torch"),
        ({"settings": {"seed": 0, "backend": "oneflow", "new": 1}}, "settings.new: absent in"),
    ],
)
def test_every_difference_in_work_is_a_line(change, line):
    work = {
        "precision": "float32",
        "tf32": False,
        "device": "cuda",
        "layout": "channels first",
        "gradient_norm_limit": 10.0,
        "hyperparameters": {"mosaic": 1.0},
        "batches_sha1": "cd",
        "epochs": 300,
        "settings": {"seed": 0, "backend": "torch"},
    }
    found = differences(run(work=work), run("oneflow", {**work, **change}), set())
    assert len(found) == 1 and line in found[0]
    name = line.partition(":")[0]
    assert differences(run(work=work), run("oneflow", {**work, **change}), {name}) == []


def test_losses_are_compared_over_the_same_batches_and_the_worst_is_told():
    gap = loss_gap(run(losses=[[1, 2, 3], [1, 1, 2]]), run(losses=[[1, 2, 3], [1, 1, 2.02]]))
    assert (gap["batches"], gap["worst_batch"], gap["diverged"]) == (2, 2, False)
    assert gap["worst"] == pytest.approx(0.005) and gap["tolerance"] == TOLERANCE
    assert loss_gap(run(losses=[[1, 2, 3]]), run(losses=[[1, 2, 3.1]]))["diverged"]
    assert loss_gap(run(losses=[[1, 2, 3]]), run(losses=[[1, 2, float("nan")]]))["diverged"]
    half = run(losses=[[1, 2, 3.1]], work={"precision": "bfloat16"})
    assert loss_gap(run(), half)["tolerance"] == HALF_TOLERANCE
    assert loss_gap(run(losses=[]), run()) is None


@pytest.mark.parametrize("other", [0.3, float("inf"), None])
@pytest.mark.parametrize("lost", [float("nan"), float("inf"), None])
def test_a_loss_that_is_not_finite_on_either_side_diverges_wherever_it_stands(lost, other):
    left, right = [[1, 2, 3], [1, 1, other], [1, 1, 1]], [[1, 2, 3.00001], [1, 1, lost], [1, 1, 1]]
    for reference, candidate in ((left, right), (right, left)):
        gap = loss_gap(run(losses=reference), run("oneflow", losses=candidate))
        assert gap["diverged"] and (gap["worst"], gap["worst_batch"]) == (None, 2)


def test_batches_after_the_first_ones_are_not_judged():
    far = [[1, 2, 3]] * 10 + [[9, 9, 9]]
    assert not loss_gap(run(losses=far), run(losses=[[1, 2, 3]] * 11))["diverged"]


def test_ratios_pair_the_same_epoch_of_the_same_round_without_warm_up():
    reference = [run(seconds=(9, 1, 2)), run(seconds=(9, 4, 5), number=2)]
    candidate = [run(seconds=(90, 2, 6)), run(seconds=(90, 8), number=2)]
    assert epoch_ratios(reference, candidate) == [2.0, 3.0, 2.0]
    for one, times in ((reference[0], (0.0, 4.0)), (candidate[0], (1.0, 3.0))):
        for epoch, seconds in zip(one["epochs"][1:], times, strict=True):
            epoch["processor_seconds"] = seconds
    pairs = epoch_ratios(reference[:1], candidate[:1], "processor_seconds")
    assert pairs == [0.75]  # no ratio to an epoch that took no tick
    assert process_ratios([run(process=2.0)], [run(process=5.0), run(number=2)]) == [2.5]


@pytest.mark.parametrize(
    ("ratios", "rounds", "expected"),
    [
        ([4.8, 5.0, 5.1, 4.9], 2, "slower"),
        ([0.5, 0.55, 0.52, 0.5], 2, "faster"),
        ([1.02, 0.98, 1.01, 1.0], 2, "no difference beyond noise"),
        # All above 1, but their spread reaches it: log 1.02 - (log 1.3 - log 1.02) / 2 < 0.
        ([1.02, 1.3, 1.1, 1.2], 2, "no difference beyond noise"),
        ([5.0, 5.0, 5.0, 5.0], 1, "too few pairs to tell"),
        ([], 0, "too few pairs to tell"),
    ],
)
def test_a_ratio_counts_only_beyond_the_spread_of_its_pairs(ratios, rounds, expected):
    assert verdict(ratios, rounds) == expected
    if expected in ("slower", "faster"):
        inverse = verdict([1 / ratio for ratio in ratios], rounds)
        assert {expected, inverse} == {"slower", "faster"}
