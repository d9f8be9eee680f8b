"""Which values the trials of a search try, when one is given up, and the file that keeps them."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.errors import UserError
from duet.utils.evolution.study import RANGES, Range, SearchStudy, searched_ranges
from duet.utils.optional import install_command
from duet.utils.tasks.table import CLASSIFICATION, CLASSIFIER_HYPERPARAMETERS

HYP = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
RANGED = {"x": Range(0, 1), "y": Range(0.01, 10, True)}
BEGIN = {"x": 0.2, "y": 1.0}


def open_study(path: Path, seed: int = 0, epochs: int = 1) -> SearchStudy:
    return SearchStudy(path, BEGIN, RANGED, epochs, seed, {})


def train(study: SearchStudy) -> None:
    """Run one trial, whose fitness is highest where x is 0.7."""
    trial = study.begin_trial()
    study.end_trial(trial, "COMPLETE", 1 - abs(trial.params["x"] - 0.7), {"metrics/a": 1.0})


def tried(path: Path, trials: int, seed: int = 0, cut: int = 0) -> list[dict[str, float]]:
    """Return the values of a search that another process goes on with after `cut` trials."""
    for count in (cut, trials - cut):
        study = open_study(path, seed)
        for _ in range(count):
            train(study)
    return [trial.params for trial in study.trials("COMPLETE")]


def test_what_is_zero_to_begin_with_and_what_changes_nothing_in_a_task_are_not_searched():
    ranges, values = searched_ranges(HYP), dataclasses.asdict(HYP)
    assert {name for name in RANGES if values[name] == 0} == RANGES.keys() - ranges.keys()
    hyp = read_hyperparameters(CLASSIFIER_HYPERPARAMETERS, ["mosaic=1"])
    assert searched_ranges(hyp, CLASSIFICATION.unused).keys() == {
        "lr0", "lrf", "momentum", "weight_decay", "warmup_momentum", "hsv_s", "hsv_v", "scale",
    }  # fmt: skip


def test_a_range_is_wide_enough_for_the_value_to_begin_with_and_both_ends_are_accepted():
    ranges = searched_ranges(dataclasses.replace(HYP, cls=6.0, box=0.01))
    assert (ranges["cls"].high, ranges["box"].low, ranges["obj"]) == (6.0, 0.01, RANGES["obj"])
    for name, found in RANGES.items():
        for value in (found.low, found.high) if name != "copy_paste" else ():  # it needs polygons
            assert getattr(dataclasses.replace(HYP, **{name: value}), name) == value


def test_the_first_trial_has_the_values_to_begin_with_and_later_ones_come_near_the_best(tmp_path):
    values = tried(tmp_path / "search", 30)
    assert values[0] == BEGIN
    assert min(abs(found["x"] - 0.7) for found in values) < 0.05
    assert all(0.01 <= found["y"] <= 10 for found in values)


def test_draws_depend_on_the_seed_and_a_search_goes_on_as_if_undisturbed(tmp_path):
    whole = tried(tmp_path / "whole", 6)
    assert tried(tmp_path / "other", 6, seed=1) != whole
    for cut in (1, 4):
        assert tried(tmp_path / f"cut-{cut}", 6, cut=cut) == whole


def test_a_trial_below_the_median_is_hopeless_but_not_in_its_first_third(tmp_path):
    study = open_study(tmp_path / "search", epochs=9)
    for number in range(6):
        trial = study.begin_trial()
        for epoch in range(9):
            trial.report(0.1 * number, epoch)
        study.end_trial(trial, "COMPLETE", 0.1 * number, {})
    for fitness, is_hopeless in ((0.01, True), (0.4, False)):
        trial = study.begin_trial()
        for epoch in range(4):
            assert not trial.should_prune()
            trial.report(fitness, epoch)
        assert bool(trial.should_prune()) is is_hopeless  # the median of the others is 0.25


def test_several_machines_share_a_search(tmp_path):
    path = tmp_path / "shared" / "search"
    studies = [open_study(path) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda study: [train(study) for _ in range(5)], studies))
    numbers = [trial.number for trial in open_study(path).trials("COMPLETE")]
    assert sorted(numbers) == list(range(15))


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    tried(tmp_path / "search", 12)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    assert len(tried(tmp_path / "search", 2)) == 14
    for line in (tmp_path / "search").read_text().splitlines():
        assert isinstance(json.loads(line), dict)


@pytest.mark.parametrize("content", ["{\n{}\n", "[1]\n"])
def test_a_file_that_is_damaged_or_of_another_search_is_refused(tmp_path, content):
    (tmp_path / "damaged").write_text(content)
    with pytest.raises(UserError, match="holds no search: .*; begin a new search under another"):
        open_study(tmp_path / "damaged")
    open_study(tmp_path / "search")
    with pytest.raises(UserError, match="has a search of other settings; begin a new search"):
        open_study(tmp_path / "search", seed=1)
    with pytest.raises(UserError, match="--storage"):
        open_study(tmp_path)


def test_without_optuna_the_install_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    command = re.escape(install_command("optuna"))
    with pytest.raises(UserError, match=f"--evolve needs optuna; install it: {command}"):
        open_study(tmp_path / "search")
