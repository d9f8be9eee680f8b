"""Losses, skipped updates and times of training steps, read without waiting for the device.

The device decides at each update whether all values are finite.
"""

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from duet import backend
from duet.backend import dist, ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.models.heads.base import LossTerms
from duet.utils.errors import UserError
from duet.utils.files.json_files import Document
from duet.utils.processes.ranks import on_main
from duet.utils.report.results import STAGES
from duet.utils.text import count

MAX_FIRST_LOSSES = 1000
MOST_IN_A_ROW = 10  # consecutive skipped updates that end a run
# Unread device marks to keep: a few dozen steps, which are done long before they are read.
UNREAD_STAGES = 256

log = logging.getLogger("train")
warn = on_main(log.warning)  # all ranks have the same result


class BatchName(NamedTuple):
    """Identifies a batch; epoch and step are counted from 1."""

    epoch: int
    step: int
    sample_indices: np.ndarray  # (B,) int64

    def __str__(self) -> str:
        return f"epoch {self.epoch}, step {self.step}, images {self.sample_indices.tolist()}"


class StepWatch:
    """Losses of an epoch's batches, and whether its updates were finite.

    Attributes:
        loss_names: names of the losses in order, with their short names.
        skipped: number of updates skipped in this epoch because of a non-finite loss or gradient.
        first_losses: losses of the run's first batches that have been read.
        asked: whether any rank was asked to stop before the last settled update; None without
            `carry_requests`.
    """

    def __init__(self, loss_names: Mapping[str, str]) -> None:
        self.loss_names = loss_names
        self.first_losses: list[np.ndarray] = []
        self.asked: bool | None = None
        self._is_asked: Callable[[], bool] = bool
        self._in_a_row = 0
        self._unread: list[tuple[BatchName, list[Tensor]]] = []
        self._window: list[tuple[BatchName, np.ndarray]] = []  # read since the last update
        # The last update's unread batches, and a function to read their losses and gradient norm.
        self._closed: tuple[list[BatchName], Callable[[], np.ndarray]] | None = None
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._sums, self._batches, self._lost = np.zeros(len(self.loss_names)), 0, 0
        self.skipped = 0

    def carry_requests(self, is_asked: Callable[[], bool]) -> None:
        """Send with the losses of each update whether this rank is asked to stop.

        A collective of its own would let the hosts of all ranks wait for each other.
        """
        self.asked, self._is_asked = False, is_asked

    def add(self, name: BatchName, terms: LossTerms) -> None:
        self._unread.append((name, [term.detach() for term in terms.by_name.values()]))

    def close_update(self, gradient_norm: Tensor) -> Tensor:
        """Close the batches of an update; call `settle` before the next one.

        Returns:
            0-d float32 on the device: 1 if a loss since the last update or the gradient norm is not
            finite, else 0. Nothing waits for it.
        """
        assert self._closed is None
        if self.asked is not None:
            _, terms = self._unread[-1]
            where = ops.dtype_of(terms[0]), ops.device_of(terms[0])
            terms.append(ops.full((), float(self._is_asked()), *where))
        values = self._on_device([gradient_norm])
        self._closed = [name for name, _ in self._unread], ops.to_numpy_later(values)
        self._unread = []
        read_before = all(np.isfinite(losses).all() for _, losses in self._window)
        # Infinity times 0 is NaN, and NaN is not at most 0.
        finite = ops.cast(ops.sum(values * 0.0) <= 0.0, "float32")
        return 1.0 - (finite if read_before else finite * 0.0)

    def settle(self, scale_can_fall: bool = False) -> bool | None:
        """Return whether the last closed update happened; None if already returned.

        Log the batches if not. Raise UserError for the tenth consecutive one, not counting
        overflows of gradients alone while the loss scale can still fall.
        """
        if self._closed is None:
            return None
        (names, read), self._closed = self._closed, None
        *losses_read, norm = read().astype(np.float64)
        if self.asked is not None:
            self.asked = losses_read.pop() > 0
        self._take(names, np.array(losses_read))
        window, self._window = self._window, []
        spoiled = [(name, losses) for name, losses in window if not np.isfinite(losses).all()]
        if not spoiled and np.isfinite(norm):
            self._in_a_row = 0
            return True
        self.skipped += 1
        self._in_a_row += 0 if scale_can_fall and not spoiled else 1
        reason = "the loss is" if spoiled else "losses are finite, but a gradient is"
        batches = "; ".join(
            f"{self.describe(losses)} in {name}" for name, losses in spoiled or window
        )
        if self._in_a_row >= MOST_IN_A_ROW:
            raise UserError(
                f"{reason} not finite ({batches}) for {count(self._in_a_row, 'update')} in a row; "
                "lower lr0 in --hyp, check the labels of these images, or use --amp off"
            )
        warn(
            "update skipped: %s not finite: %s; non-finite BatchNorm statistics are restored from "
            "the EMA", reason, batches,
        )  # fmt: skip
        return False

    def end_epoch(self) -> np.ndarray:
        """Return the mean losses of the epoch's batches with finite losses; NaN if none."""
        self._read()
        if self.skipped:
            warn("%s skipped in this epoch, see above", count(self.skipped, "update"))
        if self._lost:
            lost = count(self._lost, "batch", "batches")
            warn("%s excluded from the mean losses: not finite", lost)
        means = self.means()
        self._begin_epoch()
        return means

    def means(self) -> np.ndarray:
        """Return the means over the batches read so far in this epoch, float64; NaN if none."""
        nothing = np.full(len(self.loss_names), np.nan)
        return self._sums / self._batches if self._batches else nothing

    def describe(self, losses: np.ndarray) -> str:
        named = zip(self.loss_names.values(), losses, strict=True)
        return "  ".join(f"{name} {loss:.4f}" for name, loss in named)

    def progress(self) -> str:
        """Return the mean losses of the batches read so far, formatted; "" if none."""
        named = zip(self.loss_names.values(), self.means(), strict=True)
        return " ".join(f"{name} {loss:.3f}" for name, loss in named) if self._batches else ""

    def state(self) -> Document:
        """Read all losses, and return the state as JSON values for `restore`."""
        self._read()
        return {
            "skipped": self.skipped,
            "first_losses": [losses.tolist() for losses in self.first_losses],
            "in_a_row": self._in_a_row,
            "sums": self._sums.tolist(),
            "batches": self._batches,
            "lost": self._lost,
        }

    def restore(self, state: Document) -> None:
        """Restore a `state()`; batches added since then stay in the next update, uncounted."""
        self._read()
        self.skipped, self._in_a_row = state["skipped"], state["in_a_row"]
        self.first_losses = [np.array(losses) for losses in state["first_losses"]]
        self._sums, self._batches = np.array(state["sums"]), state["batches"]
        self._lost = state["lost"]

    def _read(self) -> None:
        """Fetch the losses of batches that are not in a closed update."""
        assert self._closed is None, "call settle first: its losses come before these"
        if self._unread:
            values = ops.to_numpy(self._on_device([])).astype(np.float64)
            self._take([name for name, _ in self._unread], values)
            self._unread = []

    def _on_device(self, more: list[Tensor]) -> Tensor:
        """Return all unread losses, summed over the ranks, and more tensors, concatenated."""
        tensors = [term for _, terms in self._unread for term in terms]
        parts = [ops.stack(group, 0) for group in (tensors, more) if group]
        if tensors:
            dist.sum_(parts[0])  # each rank has its part of the batch's losses
        return ops.cat(parts, 0)

    def _take(self, names: list[BatchName], values: np.ndarray) -> None:
        """Add the losses of batches, concatenated in values, to the counts."""
        losses = values.reshape(-1, len(self.loss_names))
        self._window += zip(names, losses, strict=True)
        self.first_losses.extend(losses[: MAX_FIRST_LOSSES - len(self.first_losses)])
        finite = losses[np.isfinite(losses).all(axis=1)]
        for row in finite:  # one by one, so that sums do not depend on when losses are read
            self._sums = self._sums + row
        self._batches += len(finite)
        self._lost += len(losses) - len(finite)


class StageTimer:
    """Time of each stage since creation; `with timer("forward"): ...`.

    A stage lasts from the device's queue position on entry until the device has done its work.
    Marks are read much later, so that timing does not block the host.
    """

    def __init__(self, device: str = CPU, spent: Mapping[str, float] | None = None) -> None:
        """Start a timer now or, for a resumed epoch, continue from a `state()`."""
        self._device = device
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._unread: deque[tuple[str, object, object]] = deque()
        self._start = time.perf_counter()
        if spent is not None:
            self._seconds = {stage: spent.get(stage, 0.0) for stage in STAGES}
            self._start -= spent["total"]

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = backend.device.mark(self._device)
        yield
        self._unread.append((name, start, backend.device.mark(self._device)))
        if len(self._unread) > UNREAD_STAGES:
            self._read_oldest()

    def state(self) -> dict[str, float]:
        """Return the seconds of each stage, once the device has done them, and "total"."""
        while self._unread:
            self._read_oldest()
        return {**self._seconds, "total": self.total()}

    def _read_oldest(self) -> None:
        stage, start, end = self._unread.popleft()
        self._seconds[stage] += backend.device.seconds_between(start, end)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds["data_wait"] += time.perf_counter() - start

    def total(self) -> float:
        return time.perf_counter() - self._start
