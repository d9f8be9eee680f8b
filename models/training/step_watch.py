"""Watches the losses of a run: reads them late, and finds the updates that must not happen.

Before: `models/training/step.py::train_step` adds the terms of each batch. After: it asks, at an
update, whether all of its numbers are finite. Losses stay on the device until then and come in one
transfer, so that the host queues work ahead between updates.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from backend import dist, ops
from backend.contract import Tensor
from backend.words import count
from models.heads.base import LossTerms
from utils.errors import UserError
from utils.processes.ranks import on_main

MAX_FIRST_LOSSES = 1000
MOST_IN_A_ROW = 10  # skipped updates, before a run counts as lost

log = logging.getLogger("train")


class BatchName(NamedTuple):
    """Which batch of a run; epoch and step are counted from 1, as `--replay` takes them."""

    epoch: int
    step: int
    sample_indices: np.ndarray  # (B,) int64

    def __str__(self) -> str:
        images = self.sample_indices.tolist()
        return f"epoch {self.epoch}, step {self.step} (--replay {self.epoch}:{self.step}), " + (
            f"images {images}"
        )


class StepWatch:
    """Losses and finiteness of the batches of an epoch and of the updates made of them.

    Attributes:
        loss_names: of a batch's losses in their order, each with its short name.
        skipped: updates of this epoch that did not happen, since a loss or gradient was not finite.
        first_losses: of the first batches of the run, as far as they are read.
    """

    def __init__(self, loss_names: Mapping[str, str]) -> None:
        self.loss_names = loss_names
        self.skipped = 0
        self.first_losses: list[np.ndarray] = []
        self._in_a_row = 0
        self._sums, self._batches, self._lost = np.zeros(len(loss_names)), 0, 0
        self._unread: list[tuple[BatchName, list[Tensor]]] = []
        self._window: list[tuple[BatchName, np.ndarray]] = []  # read, since the last update

    def add(self, name: BatchName, terms: LossTerms) -> None:
        """Keep a batch's losses; read nothing."""
        self._unread.append((name, [term.detach() for term in terms.by_name.values()]))

    def update_is_finite(self, gradient_norm: Tensor, scale_can_fall: bool = False) -> bool:
        """Return whether the losses since the last update and the norm of their gradients are
        finite.

        Logs the batches if not. Raises UserError for the tenth time in a row, not counting those
        whose gradients alone overflow while the loss scale can still fall.
        """
        norm = self._read([gradient_norm])
        window, self._window = self._window, []
        spoiled = [(name, losses) for name, losses in window if not np.isfinite(losses).all()]
        if not spoiled and np.isfinite(norm).all():
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
                f"{reason} not finite ({batches}), {count(self._in_a_row, 'update')} in a row; "
                "lower lr0 in --hyp, check these labels, or repeat a batch with --replay"
            )
        _warn("update skipped: %s not finite: %s", reason, batches)
        return False

    def end_epoch(self) -> np.ndarray:
        """Return the mean losses of the epoch's batches whose losses are finite; NaN of none."""
        self._read([])
        if self.skipped:
            _warn("%s of this epoch skipped, see above", count(self.skipped, "update"))
        if self._lost:
            lost = count(self._lost, "batch", "batches")
            _warn("%s left out of the mean losses: not finite", lost)
        means = self.means()
        self._sums, self._batches = np.zeros(len(self.loss_names)), 0
        self._lost, self.skipped = 0, 0
        return means

    def means(self) -> np.ndarray:
        """Return those of the batches read so far in this epoch, float64; NaN of none."""
        nothing = np.full(len(self.loss_names), np.nan)
        return self._sums / self._batches if self._batches else nothing

    def described(self, losses: np.ndarray) -> list[str]:
        """Return a batch's or the mean losses, each with its short name."""
        named = zip(self.loss_names.values(), losses, strict=True)
        return [f"{name} {loss:.4f}" for name, loss in named]

    def describe(self, losses: np.ndarray) -> str:
        """Return a batch's or the mean losses as one text."""
        return "  ".join(self.described(losses))

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values, after reading all losses; `restore` takes it."""
        self._read([])
        window = [
            {"epoch": name.epoch, "step": name.step, "losses": losses.tolist(),
             "sample_indices": name.sample_indices.tolist()}
            for name, losses in self._window
        ]  # fmt: skip
        return {
            "skipped": self.skipped,
            "first_losses": [losses.tolist() for losses in self.first_losses],
            "in_a_row": self._in_a_row,
            "sums": self._sums.tolist(),
            "batches": self._batches,
            "lost": self._lost,
            "window": window,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state()`."""
        self.skipped, self._in_a_row = state["skipped"], state["in_a_row"]
        self.first_losses = [np.array(losses) for losses in state["first_losses"]]
        self._sums, self._batches = np.array(state["sums"]), state["batches"]
        self._lost, self._unread = state["lost"], []
        self._window = [
            (
                BatchName(row["epoch"], row["step"], np.array(row["sample_indices"], np.int64)),
                np.array(row["losses"]),
            )
            for row in state["window"]
        ]

    def _read(self, more: list[Tensor]) -> np.ndarray:
        """Fetch all losses that are on the device, of all ranks, and what else is asked for."""
        tensors = [term for _, terms in self._unread for term in terms]
        parts = [ops.stack(group, 0) for group in (tensors, more) if group]
        if not parts:
            return np.zeros(0)
        if tensors:
            dist.sum_(parts[0])  # each rank has its part of the batch's losses
        values = ops.to_numpy(ops.cat(parts, 0)).astype(np.float64)
        losses = values[: len(values) - len(more)].reshape(-1, len(self.loss_names))
        self._window += [(name, row) for (name, _), row in zip(self._unread, losses, strict=True)]
        self._unread = []
        self.first_losses.extend(losses[: MAX_FIRST_LOSSES - len(self.first_losses)])
        finite = losses[np.isfinite(losses).all(axis=1)]
        for row in finite:  # one by one: a read at another moment gives the same sums
            self._sums = self._sums + row
        self._batches += len(finite)
        self._lost += len(losses) - len(finite)
        return values[len(values) - len(more) :]


@on_main  # all ranks find the same
def _warn(text: str, *values: object) -> None:
    log.warning(text, *values)
