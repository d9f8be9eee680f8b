"""The study of a search: Optuna's, in a file that several machines may share.

The file is Optuna's journal: lines of JSON, written under a lock; nothing is unpickled. What is
drawn is a function of the seed and of the trials before: a search that goes on draws what the
undisturbed one draws, as long as one trial runs at a time.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utils.data.randomness import nearly_normal, trial_generator
from utils.errors import UserError
from utils.evolution.ranges import Range
from utils.files.regular import read_text
from utils.optional import import_optional

NEAR_TRIALS = 10  # that try values near those to begin with, before TPE has enough to go by
NEAR_STEP = 0.2  # standard deviation of such a value, as a part of the one to begin with
CHANGED = 0.8  # how many values such a trial changes
COMPARED_TRIALS = 5  # that the pruner waits for
FIRST_PART = 3  # it prunes no trial in the first third of its epochs
STATES = ("COMPLETE", "PRUNED", "RUNNING", "FAIL")  # Optuna's
NAME, SETTINGS, FIGURES = "duet", "settings", "figures"
MAX_BYTES = 2**27  # 10,000 trials of 300 epochs have fewer
REMEDY = "begin a new search under another --name or --storage"


class SearchStudy:
    """Draws values, judges trials by their epochs so far, and keeps both in a file.

    TPE: Bergstra et al. 2011, "Algorithms for hyper-parameter optimization". A trial is pruned when
    its best epoch so far is below the median of what the others had at that epoch.

    Args:
        path: of the file; a new search begins where there is none.
        begin: the values to begin with, which the first trial has.
        ranges: of the values, by the same names.
        epochs: of a trial.

    Raises:
        UserError: Optuna is absent, or the file cannot be read or has another search.
    """

    def __init__(
        self,
        path: Path,
        begin: Mapping[str, float],
        ranges: Mapping[str, Range],
        epochs: int,
        seed: int,
    ) -> None:
        self._optuna = import_optional("optuna", "--evolve")
        logging.getLogger("optuna").setLevel(logging.WARNING)
        warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
        self.path, self._ranges, self._seed = path, ranges, seed
        ranged = {name: list(found) for name, found in ranges.items()}
        settings = {"begin": dict(begin), "ranges": ranged, "epochs": epochs, "seed": seed}
        try:
            self._open(epochs)
            if SETTINGS not in self._study.user_attrs:
                for number in range(NEAR_TRIALS + 1):
                    self._study.enqueue_trial(_values_near(begin, ranges, seed, number))
                self._study.set_user_attr(SETTINGS, settings)
            found = self._study.user_attrs[SETTINGS]
            self._require_sound_trials()
        except OSError as error:
            raise UserError(f"--storage {path}: {error.strerror}") from error
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError,
                ValueError) as error:  # fmt: skip
            raise UserError(f"{path} holds no search: {error!s:.200}; {REMEDY}") from error
        if found != settings:
            raise UserError(f"{path} has a search of other settings; {REMEDY}")

    def _open(self, epochs: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        journal = self._optuna.storages.journal
        lock = journal.JournalFileSymlinkLock(str(self.path))
        lock.acquire()
        try:
            self._remove_torn_line()
        finally:
            lock.release()
        storage = self._optuna.storages.JournalStorage(journal.JournalFileBackend(str(self.path)))
        pruner = self._optuna.pruners.MedianPruner(COMPARED_TRIALS, max(epochs // FIRST_PART, 1))
        self._study = self._optuna.create_study(
            storage=storage, study_name=NAME, direction="maximize", pruner=pruner,
            load_if_exists=True,
        )  # fmt: skip

    def _remove_torn_line(self) -> None:
        """Remove what a process that was killed left of its last line."""
        if self.path.exists():
            text = read_text(self.path, MAX_BYTES)
            if not text.endswith("\n"):
                os.truncate(self.path, len(text[: text.rfind("\n") + 1].encode()))

    def _require_sound_trials(self) -> None:
        for trial in self.trials():
            for name, value in trial.params.items():
                if not self._ranges[name].low <= value <= self._ranges[name].high:
                    raise ValueError(
                        f"trial {trial.number + 1}: {name} {value} is out of its range"
                    )
            for value in trial.user_attrs.get(FIGURES, {}).values():
                float(value)

    def trials(self, *states: str) -> list[Any]:
        """Return Optuna's trials in one of these states, by default in any of STATES."""
        found = self._study.get_trials(deepcopy=False)
        return [trial for trial in found if trial.state.name in (states or STATES)]

    def best(self) -> Any:
        """Return the trial with the highest fitness of those that trained to their end, or None."""
        return max(self.trials("COMPLETE"), key=lambda trial: trial.value, default=None)

    def ask(self) -> Any:
        """Begin a trial; its `params` are the values to train with."""
        number = len(self._study.get_trials(deepcopy=False))
        draw = trial_generator(self._seed, number).random()
        self._study.sampler = self._optuna.samplers.TPESampler(
            n_startup_trials=1, seed=int(draw * 2**32), multivariate=True
        )
        return self._with_values(self._study.ask())

    def take_up(self, frozen: Any) -> Any:
        """Return a trial that an earlier process did not end."""
        return self._with_values(self._optuna.trial.Trial(self._study, frozen._trial_id))

    def _with_values(self, trial: Any) -> Any:
        for name, found in self._ranges.items():
            trial.suggest_float(name, found.low, found.high, log=found.logarithmic)
        return trial

    def tell(self, trial: Any, state: str, fitness: float, figures: Mapping[str, float]) -> None:
        """Keep the state in which a trial ended, and the figures of its best epoch."""
        trial.set_user_attr(FIGURES, dict(figures))
        value = fitness if state == "COMPLETE" else None
        self._study.tell(trial, value, self._optuna.trial.TrialState[state])


def _values_near(
    begin: Mapping[str, float], ranges: Mapping[str, Range], seed: int, number: int
) -> dict[str, float]:
    """Draw values near those to begin with, which trial 0 has; some stay."""
    if number == 0:
        return dict(begin)
    generator = trial_generator(seed, number)
    values = {}
    for name, found in ranges.items():
        changed, *parts = generator.random(5).tolist()
        step = NEAR_STEP * nearly_normal(parts) * (changed < CHANGED)
        values[name] = min(max(begin[name] * (1 + step), found.low), found.high)
    return values
