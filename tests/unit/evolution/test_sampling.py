"""Which values a trial of a search tries, and when it is given up."""

import dataclasses

import pytest

from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from utils.errors import UserError
from utils.evolution.ranges import RANGES, Range, searched_ranges
from utils.evolution.records import DONE, FAILED, PRUNED, TrialRecord
from utils.evolution.sampling import NEAR_TRIALS, Sampler
from utils.tasks.classification import CLASSIFICATION, HYPERPARAMETERS
from utils.tasks.detection import DETECTION

HYP = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
TWO = {"x": Range(0, 1), "y": Range(0.01, 10, True)}
BEGIN = {"x": 0.2, "y": 1.0}


def fitness_of(values):
    """Highest where x is 0.7, falling by the distance from there."""
    return 1 - abs(values["x"] - 0.7)


def ended(number, values, state=DONE, fitness=None):
    fitness = [fitness_of(values)] if fitness is None else fitness
    return TrialRecord(number, values, state, fitness)


def search(trials, seed=0, records=()):
    """Run trials one after the other; records: those of an earlier process."""
    sampler, found = Sampler(BEGIN, TWO, epochs=1, seed=seed), list(records)
    for record in found:
        sampler.take_back(record)
    for number in range(len(found), trials):
        found.append(ended(number, sampler.ask(number)))
        sampler.tell(found[-1])
    return found


def test_what_is_zero_to_begin_with_is_not_searched():
    ranges = searched_ranges(HYP)
    values = dataclasses.asdict(HYP)
    assert {name for name in RANGES if values[name] == 0} == RANGES.keys() - ranges.keys()
    assert {"degrees", "mixup", "anchors"}.isdisjoint(ranges) and {"lr0", "mosaic"} <= set(ranges)


def test_what_changes_nothing_in_a_task_is_not_searched():
    hyp = read_hyperparameters(HYPERPARAMETERS, ["randaugment=0.3", "mosaic=1"])
    ranges = searched_ranges(hyp, CLASSIFICATION.unused)
    assert ranges.keys() == {
        "lr0", "lrf", "momentum", "weight_decay", "warmup_momentum", "hsv_s", "hsv_v", "scale",
        "randaugment",
    }  # fmt: skip
    assert {"mosaic", "box"} <= searched_ranges(hyp, DETECTION.unused).keys()
    assert "randaugment" not in searched_ranges(hyp, DETECTION.unused)


def test_a_range_is_wide_enough_for_the_value_to_begin_with():
    hyp = dataclasses.replace(HYP, cls=6.0, box=0.01)
    ranges = searched_ranges(hyp)
    assert (ranges["cls"].high, ranges["box"].low) == (6.0, 0.01)
    assert ranges["obj"] == RANGES["obj"]


@pytest.mark.parametrize("end", ["low", "high"])
def test_both_ends_of_every_range_are_hyper_parameters(end):
    for name, found in RANGES.items():
        if name != "copy_paste":  # it is refused where no polygons are known
            value = getattr(found, end)
            assert getattr(dataclasses.replace(HYP, **{name: value}), name) == value


def test_the_first_trial_has_the_values_to_begin_with_and_the_next_are_near_them():
    trials = search(1 + NEAR_TRIALS)
    assert trials[0].values == BEGIN
    assert sum(record.values != BEGIN for record in trials) > NEAR_TRIALS / 2
    for record in trials[1:]:
        # Four uniform numbers are at most 2 from their mean: 0.2 * 2 * 3 ** 0.5 is 0.69.
        assert all(0.3 <= record.values[name] / BEGIN[name] <= 1.7 for name in BEGIN)
    assert all(0 <= x.values["x"] <= 1 for x in trials)


def test_the_search_comes_nearer_to_the_best_values_than_it_began():
    for seed in (0, 1):
        trials = search(40, seed)
        assert all(0.01 <= record.values["y"] <= 10 for record in trials)
        assert abs(max(trials, key=lambda x: x.best).values["x"] - 0.7) < 0.05


def test_draws_depend_on_the_seed_and_a_search_goes_on_as_if_undisturbed():
    whole = search(16)
    assert search(16) == whole and search(16, seed=1) != whole
    for cut in (1, 7, 13):
        assert search(16, records=whole[:cut]) == whole


def test_a_trial_that_was_running_keeps_its_values():
    whole = search(14)
    sampler = Sampler(BEGIN, TWO, 1, 0)
    for record in whole[:12]:
        sampler.take_back(record)
    sampler.take_back(TrialRecord(12, whole[12].values))
    sampler.tell(whole[12])
    assert sampler.ask(13) == whole[13].values


def test_a_failed_trial_teaches_nothing_and_stops_nothing():
    sampler = Sampler(BEGIN, TWO, 1, 0)
    for number in range(13):
        values = sampler.ask(number)
        sampler.tell(ended(number, values, FAILED, []))
    assert set(sampler.ask(13)) == {"x", "y"}


def test_a_trial_below_the_median_is_hopeless_but_not_in_its_first_third():
    sampler = Sampler(BEGIN, TWO, epochs=9, seed=0)
    for number in range(6):
        record = ended(number, sampler.ask(number), DONE, [0.1 * number] * 9)
        assert not sampler.report(record) or number == 0
        sampler.tell(record)
    values = sampler.ask(6)
    bad = TrialRecord(6, values, fitness=[0.01] * 3)
    assert not sampler.report(bad)
    bad.fitness.append(0.01)  # others' median is 0.25
    assert sampler.report(bad)
    sampler.tell(dataclasses.replace(bad, state=PRUNED))
    good = TrialRecord(7, sampler.ask(7), fitness=[0.4] * 5)
    assert not sampler.report(good)


def test_epochs_without_figures_are_passed_over():
    sampler = Sampler(BEGIN, TWO, epochs=3, seed=0)
    record = TrialRecord(0, sampler.ask(0), fitness=[float("nan"), float("nan"), 0.5])
    assert not sampler.report(record)
    assert record.best == 0.5
    sampler.tell(dataclasses.replace(record, state=DONE))


def test_without_optuna_the_install_command_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(UserError, match="--evolve needs optuna: pip install "):
        Sampler(BEGIN, TWO, 1, 0)
