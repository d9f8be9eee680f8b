"""utils/state/progress.py, and which epoch is the best: the public YOLOv5's stored decisions."""

import json
import math
from types import SimpleNamespace

import pytest

from duet.models.training.loop import found_best, seconds_left
from duet.utils.state.progress import EndRule
from tests.environments import shared_path


def rule_of(patience, hours, no_val=False):
    config = SimpleNamespace(epochs=100, patience=patience, hours=hours, no_val=no_val)
    return EndRule.of(config)


def stored_cases():
    path = shared_path("golden/recipe/info.json")
    return json.loads(path.read_text(encoding="utf-8"))["early_stopping"]


def test_best_epoch_and_patience_match_public_yolov5():
    cases = stored_cases()
    assert len(cases) == 36 and {case["patience"] for case in cases} == {0, 1, 2, 3, 5, 100}
    for case in cases:
        state = SimpleNamespace(best_fitness=-1.0, best_epoch=0)
        state.model = SimpleNamespace(head=SimpleNamespace(fitness=lambda fitness: fitness))
        for epoch, fitness, stop, _, best_epoch, best_fitness, _, best_written in case["rows"]:
            state.epoch = epoch + 1  # the public counts from 0
            is_best = found_best(state, math.nan if fitness is None else fitness)
            assert is_best == best_written
            assert (state.best_epoch, state.best_fitness) == (best_epoch + 1, best_fitness)
            rule = rule_of(case["patience"], 0)._replace(epochs=10**6)
            assert bool(rule.reason(state.epoch, state.best_epoch, 1e9)) == stop


HALF_AN_HOUR = "--time 0.5: reached the limit of 0.5 hours"


@pytest.mark.parametrize(
    ("rule", "epoch", "best_epoch", "seconds", "reason"),
    [
        (rule_of(2, 1.0), 7, 5, 9999, "2 epochs without improvement (--patience 2)"),
        (rule_of(1, 0), 2, 1, 0, "1 epoch without improvement (--patience 1)"),
        (rule_of(2, 0), 99, 0, 0, ""),  # no figure was a number
        (rule_of(2, 1.0), 100, 99, 9999, "all 100 epochs are done"),
        (rule_of(0, 0.5), 3, 1, 1799.9, ""),
        (rule_of(0, 0.5), 3, 1, 1800, HALF_AN_HOUR),
        (rule_of(0, 0.5), 3, 1, 1e9, HALF_AN_HOUR),
        (rule_of(3, 2.0, no_val=True), 9, 1, 0, ""),
        (rule_of(3, 2.0), 3, 1, 0, ""),
    ],
)
def test_run_ends_by_epochs_patience_or_time_and_says_which(
    rule, epoch, best_epoch, seconds, reason
):
    assert rule.reason(epoch, best_epoch, seconds) == reason


def test_remaining_time_follows_past_batches():
    schedule = SimpleNamespace(epochs=4, batches_per_epoch=25)
    state = SimpleNamespace(schedule=schedule, batch_number=20)
    assert seconds_left(30.0, state) == pytest.approx(120.0)  # 80 batches of 1.5 s
