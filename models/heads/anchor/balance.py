"""The weight of each level's objectness loss: fixed or, with --autobalance, by that loss.

Source: the public YOLOv5 recipe, by its stored results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from duet.backend import dist, ops
from duet.backend.contract import Tensor
from duet.backend.processes import this_process

# Finest level first: fine levels have more cells, of which a smaller part is positive.
LEVEL_BALANCE = {3: (4.0, 1.0, 0.4)}
LEVEL_BALANCE_OTHER = (4.0, 1.0, 0.25, 0.06, 0.02)
REFERENCE_STRIDE = 16  # the level of this stride keeps the weight 1
RATE = 1e-4  # of a batch
LARGEST = 1e6  # beyond it nothing is learnt: a loss was next to 0 or not finite


class LevelBalance:
    """The weights of the levels, the same on all ranks.

    Those that follow the losses stay on the device in float64: nothing waits for them.

    Args:
        num_levels: of the head.
        reference: the level that the others are weighed by; None for weights that stay.
    """

    def __init__(self, num_levels: int, reference: int | None = None) -> None:
        self.fixed = LEVEL_BALANCE.get(num_levels, LEVEL_BALANCE_OTHER)[:num_levels]
        self._reference = reference
        self._values = np.array(self.fixed)
        self._on_device: Tensor | None = None
        self._seen: Sequence[Tensor] = ()

    def weights(self, dtype: str, device: str) -> Sequence[float] | Tensor:
        """Return the weights, (L,): numbers if they are fixed, else a tensor."""
        if self._reference is None:
            return self.fixed
        if self._on_device is None:
            self._on_device = ops.tensor(self._values, device)
        return ops.cast(self._on_device, dtype)

    def see(self, losses: Sequence[Tensor], adds: bool = False) -> None:
        """Take the objectness loss of each level, 0-d, unweighted, detached: this rank's part.

        adds: to that of the pieces of the batch before.
        """
        if adds:
            losses = [before + loss for before, loss in zip(self._seen, losses, strict=True)]
        self._seen = losses

    def follow(self) -> None:
        """Move each weight towards the inverse of the loss last seen, then divide by the
        reference's.

        Weights stay as they are if a loss is 0 or not finite. Every rank calls it.
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
        """Return what `restore` takes once it is read: nothing if the weights stay."""
        if self._reference is None:
            return {}
        values = self._on_device
        return {"balance": ops.tensor(self._values) if values is None else values}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from a `state()`; ValueError for another one."""
        wanted = {} if self._reference is None else {"balance": len(self.fixed)}
        values = np.array(state.get("balance", self.fixed), np.float64)
        if {name: len(x) for name, x in state.items()} != wanted or not (
            (values > 0) & (values < LARGEST)
        ).all():
            raise ValueError("the weights of its levels (--autobalance) do not fit")
        self._values, self._on_device = values, None


def reference_level(strides: Sequence[int]) -> int:
    """Return the level whose stride is, or is nearest to, 16."""
    return min(range(len(strides)), key=lambda level: abs(strides[level] - REFERENCE_STRIDE))
