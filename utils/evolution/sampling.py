"""Which values the next trial tries, and which trial to prune: Optuna's part of a search.

Before: `ranges.py` and the trials so far. After: `search.py` trains with the values. What is drawn
is a function of the seed, the trial's number and the trials before it: a search that goes on draws
what the undisturbed one draws.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from utils.data.randomness import nearly_normal, trial_generator
from utils.evolution.ranges import Range
from utils.evolution.records import DONE, FAILED, PRUNED, RUNNING, TrialRecord
from utils.optional import import_optional

NEAR_TRIALS = 10  # that try values near those to begin with, before TPE has enough to go by
NEAR_STEP = 0.2  # standard deviation of such a value, as a part of the one to begin with
CHANGED = 0.8  # how many values such a trial changes
COMPARED_TRIALS = 5  # that the pruner waits for
FIRST_PART = 3  # it prunes no trial in the first third of its epochs


class Sampler:
    """Draws values, and judges trials by their epochs so far.

    TPE: Bergstra et al. 2011, "Algorithms for hyper-parameter optimization". A trial is pruned when
    its best epoch so far is below the median of what the others had at that epoch.

    Args:
        begin: the values to begin with, which the first trial has.
        ranges: of the values, by the same names.
        epochs: of a trial.
    """

    def __init__(
        self, begin: Mapping[str, float], ranges: Mapping[str, Range], epochs: int, seed: int
    ) -> None:
        self._optuna = import_optional("optuna", "--evolve")
        logging.getLogger("optuna").setLevel(logging.WARNING)
        self._begin, self._ranges, self._seed = begin, ranges, seed
        pruner = self._optuna.pruners.MedianPruner(COMPARED_TRIALS, max(epochs // FIRST_PART, 1))
        self._study = self._optuna.create_study(direction="maximize", pruner=pruner)
        self._trials: dict[int, Any] = {}

    def ask(self, number: int) -> dict[str, float]:
        """Return the values of the next trial."""
        if number == 0:
            return self._begun(number, self._begin)
        if number <= NEAR_TRIALS:
            return self._begun(number, self._near(number))
        draw = trial_generator(self._seed, number).random()
        self._study.sampler = self._optuna.samplers.TPESampler(
            n_startup_trials=1, seed=int(draw * 2**32), multivariate=True
        )
        return self._started(number)

    def take_back(self, record: TrialRecord) -> None:
        """Take a trial of an earlier process, in the order of their numbers."""
        self._begun(record.number, record.values)
        self.report(record)
        if record.state != RUNNING:
            self.tell(record)

    def report(self, record: TrialRecord) -> bool:
        """Take the epochs of a trial so far; return whether to prune it."""
        trial = self._trials[record.number]
        known = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
        for epoch, fitness in enumerate(record.fitness):
            if epoch not in known and not math.isnan(fitness):
                trial.report(fitness, epoch)
        return bool(trial.should_prune())

    def tell(self, record: TrialRecord) -> None:
        """Take the end of a trial."""
        states = self._optuna.trial.TrialState
        state = {DONE: states.COMPLETE, PRUNED: states.PRUNED, FAILED: states.FAIL}[record.state]
        value = record.best if record.state == DONE else None
        self._study.tell(self._trials.pop(record.number), value, state)

    def _begun(self, number: int, values: Mapping[str, float]) -> dict[str, float]:
        """Begin a trial with values that are not drawn."""
        self._study.enqueue_trial(dict(values))
        return self._started(number)

    def _started(self, number: int) -> dict[str, float]:
        trial = self._trials[number] = self._study.ask()
        return {
            name: trial.suggest_float(name, found.low, found.high, log=found.logarithmic)
            for name, found in self._ranges.items()
        }

    def _near(self, number: int) -> dict[str, float]:
        """Draw values near those to begin with; some stay."""
        generator = trial_generator(self._seed, number)
        values = {}
        for name, found in self._ranges.items():
            changed, *parts = generator.random(5).tolist()
            step = NEAR_STEP * nearly_normal(parts) * (changed < CHANGED)
            values[name] = min(max(self._begin[name] * (1 + step), found.low), found.high)
        return values
