"""Weights of the levels' objectness losses: fixed or, with --autobalance, adaptive.

Source: the public YOLOv5 recipe, checked against its stored results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from duet.backend import dist, ops
from duet.backend.contract import Tensor
from duet.backend.processes import this_process

# Finest level first: finer levels have more cells and a smaller fraction of positives.
LEVEL_BALANCE = {3: (4.0, 1.0, 0.4)}
LEVEL_BALANCE_OTHER = (4.0, 1.0, 0.25, 0.06, 0.02)
REFERENCE_STRIDE = 16  # the level with this stride keeps weight 1
RATE = 1e-4  # per batch
LARGEST = 1e6  # larger weights are discarded: a loss was near 0 or not finite


class LevelBalance:
    """Level weights, the same on all ranks.

    Adaptive weights stay on the device in float64, so nothing waits for them.

    Args:
        num_levels: number of the head's levels.
        reference: the level with weight 1; None for fixed weights.
    """

    def __init__(self, num_levels: int, reference: int | None = None) -> None:
        self.fixed = LEVEL_BALANCE.get(num_levels, LEVEL_BALANCE_OTHER)[:num_levels]
        self._reference = reference
        self._values = np.array(self.fixed)
        self._on_device: Tensor | None = None
        self._seen: Sequence[Tensor] = ()

    def weights(self, dtype: str, device: str) -> Sequence[float] | Tensor:
        """Return the weights, (L,): numbers if fixed, else a tensor."""
        if self._reference is None:
            return self.fixed
        if self._on_device is None:
            self._on_device = ops.tensor(self._values, device)
        return ops.cast(self._on_device, dtype)

    def see(self, losses: Sequence[Tensor], adds: bool = False) -> None:
        """Record this rank's objectness loss per level, 0-d, unweighted, detached.

        adds: accumulate over pieces of the same batch.
        """
        if adds:
            losses = [before + loss for before, loss in zip(self._seen, losses, strict=True)]
        self._seen = losses

    def follow(self) -> None:
        """Move each weight towards the inverse of the last loss, then divide by the reference's.

        Weights are unchanged if a loss is 0 or not finite. Call it on every rank.
        """
        if self._reference is None:
            return
        assert self._on_device is not None and self._seen
        losses = ops.cast(ops.stack(self._seen), "float64")
        if this_process().world_size > 1:
            dist.sum_(losses)
        drawn = self._on_device * (1.0 - RATE) + RATE / losses
        is_sound = ops.sum(drawn) + ops.sum(losses) < LARGEST
        drawn = drawn / drawn[self._reference]
        self._on_device = ops.where(is_sound, drawn, self._on_device)

    def state(self) -> dict[str, Tensor]:
        """Return the state for `restore`; empty if the weights are fixed."""
        if self._reference is None:
            return {}
        values = self._on_device
        return {"balance": ops.tensor(self._values) if values is None else values}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Restore a `state()`; ValueError if it does not match."""
        wanted = {} if self._reference is None else {"balance": len(self.fixed)}
        values = np.array(state.get("balance", self.fixed), np.float64)
        if {name: len(x) for name, x in state.items()} != wanted or not (
            (values > 0) & (values < LARGEST)
        ).all():
            raise ValueError("the level weights (--autobalance) do not match")
        self._values, self._on_device = values, None


def reference_level(strides: Sequence[int]) -> int:
    """Return the level with the stride closest to 16."""
    return min(range(len(strides)), key=lambda level: abs(strides[level] - REFERENCE_STRIDE))
