"""The Optuna study of a search, in a journal of JSON lines that several machines may share.

Sampling depends only on the seed and the earlier trials: with one trial at a time, a resumed search
draws the same values as an uninterrupted one.
"""

import dataclasses
import logging
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duet.utils.cli.hyperparameters import Hyperparameters
from duet.utils.errors import UserError, os_fault
from duet.utils.files.json_files import Document
from duet.utils.optional import import_optional

COMPARED_TRIALS = 5  # minimum number before pruning
FIRST_PART = 3  # no trial is pruned in the first third of its epochs
NAME, SETTINGS, FIGURES = "duet", "settings", "figures"
REMEDY = "start a new search with another --name or --storage"


class Range(NamedTuple):
    low: float
    high: float
    logarithmic: bool = False


# Ranges of the public YOLOv5's evolution, which does not change iou_t, perspective and fliplr, and
# has no dfl.
RANGES = {
    "lr0": Range(1e-5, 1e-1, True),
    "lrf": Range(0.01, 1, True),
    "momentum": Range(0.6, 0.98),
    "weight_decay": Range(0, 0.001),
    "warmup_epochs": Range(0, 5),
    "warmup_momentum": Range(0, 0.95),
    "warmup_bias_lr": Range(0, 0.2),
    "box": Range(0.02, 0.2, True),
    "cls": Range(0.2, 4, True),
    "cls_pw": Range(0.5, 2, True),
    "dfl": Range(0.4, 6, True),
    "obj": Range(0.2, 4, True),
    "obj_pw": Range(0.5, 2, True),
    "anchor_t": Range(2, 8, True),
    "anchors": Range(2, 10),
    "fl_gamma": Range(0, 2),
    "hsv_h": Range(0, 0.1),
    "hsv_s": Range(0, 0.9),
    "hsv_v": Range(0, 0.9),
    "degrees": Range(0, 45),
    "translate": Range(0, 0.9),
    "scale": Range(0, 0.9),
    "shear": Range(0, 10),
    "flipud": Range(0, 1),
    "mosaic": Range(0, 1),
    "mixup": Range(0, 1),
    "copy_paste": Range(0, 1),
}


def searched_ranges(hyp: Hyperparameters, unused: Collection[str] = ()) -> dict[str, Range]:
    """Return the ranges of hyper-parameters that are not 0, widened to the initial values.

    unused: those without effect, as in `Task.unused`.
    """
    values = dataclasses.asdict(hyp)
    return {
        name: found._replace(low=min(found.low, values[name]), high=max(found.high, values[name]))
        for name, found in RANGES.items()
        if values[name] > 0 and name not in unused
    }


class SearchStudy:
    """Draws values, prunes trials by their epochs so far, and stores both in a file.

    TPE: Bergstra et al. 2011, "Algorithms for hyper-parameter optimization". A trial is pruned when
    its best epoch so far is below the median of the others at that epoch.

    Args:
        path: the journal; a new search starts if it does not exist.
        begin: values of the first trial.
        ranges: ranges of the values, by the same names.
        settings: flags of all trials as JSON values, including epochs and seed.
    """

    def __init__(
        self,
        path: Path,
        begin: Mapping[str, float],
        ranges: Mapping[str, Range],
        settings: Document,
    ) -> None:
        self._optuna = optuna = import_optional("optuna", "--evolve")
        logging.getLogger("optuna").setLevel(logging.WARNING)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        self._ranges, self._seed = ranges, settings["seed"]
        kept_epochs = max(settings["epochs"] // FIRST_PART, 1)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            journal = optuna.storages.journal.JournalFileBackend(str(path))
            self._study = optuna.create_study(
                storage=optuna.storages.JournalStorage(journal), study_name=NAME,
                direction="maximize", load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(COMPARED_TRIALS, kept_epochs),
            )  # fmt: skip
            if SETTINGS not in self._study.user_attrs:
                self._study.enqueue_trial(dict(begin))
                self._study.set_user_attr(SETTINGS, {"begin": begin, "flags": settings})
            found = self._study.user_attrs[SETTINGS]
            has_same_settings = found == {"begin": begin, "flags": settings}
        except Exception as error:  # Optuna trusts its file, and fails in many ways
            reason = os_fault(error) if isinstance(error, OSError) else f"{error!s:.200}"
            text = f"--storage {path} is not a search: {reason}; {REMEDY}"
            raise UserError(text) from error
        if not has_same_settings:
            raise UserError(f"{path} has a search with other settings; {REMEDY}")

    def trials(self, *states: str) -> list[Any]:
        """Return Optuna's trials in one of these states: COMPLETE, PRUNED, RUNNING, FAIL."""
        found = self._study.get_trials(deepcopy=False)
        return [trial for trial in found if trial.state.name in states]

    def best(self) -> Any:
        """Return the finished trial with the highest fitness; None if there is none."""
        return max(self.trials("COMPLETE"), key=lambda trial: trial.value, default=None)

    def begin_trial(self, unfinished: Any = None) -> Any:
        """Return a trial; its `params` are the values to train with.

        unfinished: trial of an earlier process to continue; None for a new one.
        """
        if unfinished is not None:
            trial = self._optuna.trial.Trial(self._study, unfinished._trial_id)
        else:
            number = len(self._study.get_trials(deepcopy=False))
            seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
            self._study.sampler = self._optuna.samplers.TPESampler(
                n_startup_trials=1, seed=seed, multivariate=True
            )
            trial = self._study.ask()
        for name, found in self._ranges.items():
            trial.suggest_float(name, found.low, found.high, log=found.logarithmic)
        return trial

    def end_trial(
        self, trial: Any, state: str, fitness: float, figures: Mapping[str, float]
    ) -> None:
        """Store the final state of a trial, and the metrics of its best epoch."""
        trial.set_user_attr(FIGURES, dict(figures))
        value = fitness if state == "COMPLETE" else None
        self._study.tell(trial, value, self._optuna.trial.TrialState[state])
