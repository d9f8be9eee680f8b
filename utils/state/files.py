"""State files of a run: the last few, with the names last and best for two of them.

A state appears under its name only when complete; older states are removed only afterwards.
"""

from pathlib import Path

from duet.utils.errors import UserError
from duet.utils.files.atomic import link_or_copy
from duet.utils.text import count
from duet.utils.weights.checkpoint import Checkpoint, save_checkpoint

PATTERN = "state-*.safetensors"


class StateFiles:
    """A run's folder `weights` with its newest `keep` states."""

    def __init__(self, run_folder: Path, keep: int) -> None:
        self.folder = run_folder / "weights"
        self._keep = keep

    @property
    def best(self) -> Path:
        return self.folder / "best.safetensors"

    def newest_first(self) -> list[Path]:
        return sorted(self.folder.glob(PATTERN), key=number_of, reverse=True)

    def save(self, checkpoint: Checkpoint, is_best: bool, also: str = "") -> Path:
        """Write a state and make it `last` and, if it is the best, `best`.

        Args:
            also: an additional permanent name, such as "epoch9".

        Raises:
            UserError: it cannot be written, for example because the disk is full; earlier states
                are unchanged.
        """
        number = checkpoint.header.batch_number
        path = self.folder / f"state-{number:08d}.safetensors"
        try:
            self.folder.mkdir(exist_ok=True)
            kept = self.folder / f"{also}.safetensors" if also else path
            save_checkpoint(kept, checkpoint)
            if also:  # in this order, no state can lack its other name after a kill
                link_or_copy(kept, path)
            self.give_names(path, is_best)
            self._remove_others(number)
        except OSError as error:
            newest = next(iter(self.newest_first()), None)
            remedy = f"; free space or fix permissions, then --resume {self.folder.parent}"
            raise UserError(
                f"{error.filename or path}: the state after {count(number, 'batch', 'batches')} "
                f"could not be written ({error.strerror}); "
                + (f"{newest.name} is intact{remedy}" if newest else "there is no earlier state")
            ) from error
        return path

    def give_names(self, path: Path, is_best: bool) -> None:
        """Link a state as `last` and, if it is the best, `best`."""
        for name in ("last", "best") if is_best else ("last",):
            link_or_copy(path, self.folder / f"{name}.safetensors")

    def remove_all(self) -> None:
        """Remove the numbered states, such as those of an earlier run in this folder."""
        for path in self.newest_first():
            path.unlink(missing_ok=True)

    def _remove_others(self, number: int) -> None:
        """Remove states beyond `keep`, and later ones left from before a run went back."""
        states = self.newest_first()
        left = [path for path in states if number_of(path) > number]
        for path in [*left, *states[len(left) :][self._keep :]]:
            path.unlink(missing_ok=True)


def number_of(path: Path) -> int:
    """Return the batch number in a state's file name; -1 for other names."""
    digits = path.stem.removeprefix("state-")
    return int(digits) if digits.isdecimal() else -1
