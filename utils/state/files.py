"""The states of a run on disk: the last few, and the names last and best for two of them.

A state appears under its name only when it is complete. Older states are removed only afterwards.
"""

from __future__ import annotations

from pathlib import Path

from duet.utils.atomic_files import link_or_copy
from duet.utils.errors import UserError
from duet.utils.text import count
from duet.utils.weights.checkpoint import Checkpoint, save_checkpoint

PATTERN = "state-*.safetensors"


class StateFiles:
    """The folder `weights` of a run, with its newest `keep` states."""

    def __init__(self, run_folder: Path, keep: int) -> None:
        self.folder = run_folder / "weights"
        self._keep = keep

    @property
    def best(self) -> Path:
        """The best state, if there is one yet."""
        return self.folder / "best.safetensors"

    def newest_first(self) -> list[Path]:
        """Return the states, newest first, by the number of the next batch."""
        return sorted(self.folder.glob(PATTERN), key=number_of, reverse=True)

    def save(self, checkpoint: Checkpoint, is_best: bool, also: str = "") -> Path:
        """Write a state; it becomes `last` and, if it is the best, `best`.

        Args:
            also: a further name, which it keeps: "epoch9".

        Raises:
            UserError: it cannot be written, on a full disk for instance; the earlier states are
                unchanged.
        """
        number = checkpoint.header.batch_number
        path = self.folder / f"state-{number:08d}.safetensors"
        try:
            self.folder.mkdir(exist_ok=True)
            kept = self.folder / f"{also}.safetensors" if also else path
            save_checkpoint(kept, checkpoint)
            if also:  # a kill in between leaves no state that lacks its other name
                link_or_copy(kept, path)
            self.give_names(path, is_best)
            self._remove_others(number)
        except OSError as error:
            newest = next(iter(self.newest_first()), None)
            remedy = f"; make room or give permission, then --resume {self.folder.parent}"
            raise UserError(
                f"{error.filename or path}: the state after {count(number, 'batch', 'batches')} "
                f"could not be written ({error.strerror}); "
                + (f"{newest.name} is intact{remedy}" if newest else "there is no earlier one")
            ) from error
        return path

    def give_names(self, path: Path, is_best: bool) -> None:
        """Make a state `last` and, if it is the best, `best`."""
        for name in ("last", "best") if is_best else ("last",):
            link_or_copy(path, self.folder / f"{name}.safetensors")

    def remove_all(self) -> None:
        """Remove the states, such as those of an earlier run in this folder; other names stay."""
        for path in self.newest_first():
            path.unlink(missing_ok=True)

    def _remove_others(self, number: int) -> None:
        """Remove states that are too old, and later ones that a run left before it went back."""
        states = self.newest_first()
        left = [path for path in states if number_of(path) > number]
        for path in [*left, *states[len(left) :][self._keep :]]:
            path.unlink(missing_ok=True)


def number_of(path: Path) -> int:
    """Return how many batches a state's file has in its name; -1 for another name."""
    digits = path.stem.removeprefix("state-")
    return int(digits) if digits.isdecimal() else -1
