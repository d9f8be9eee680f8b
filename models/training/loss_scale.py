"""Loss scaling: small gradients of float16 are kept from vanishing.

Source: Micikevicius et al. 2017, arXiv:1710.03740, section 3.2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from backend import amp
from backend.contract import Tensor
from backend.processes import this_process
from models.heads.base import LossTerms

INITIAL = 2.0**16
GROWTH, BACKOFF = 2.0, 0.5
GROWTH_INTERVAL = 2000  # updates in a row without an overflow
NO_SCALE = 1.0
LIMITS = NO_SCALE, 2.0**24

log = logging.getLogger("train")


@dataclass
class LossScale:
    """A factor that halves when gradients overflow and doubles after many updates without.

    Attributes:
        value: 1 and constant unless the network computes in float16: only its gradients
            leave the range.
    """

    value: float = NO_SCALE
    adapts: bool = False
    finite_updates: int = 0

    @classmethod
    def of_precision(cls, dtype: str) -> LossScale:
        if dtype != "float16":
            return cls()
        # The totals of several ranks have their number as a factor: see `BatchParts`.
        return cls(INITIAL / this_process().world_size, adapts=True)

    @property
    def can_fall(self) -> bool:
        """Whether an overflow may be the scale's fault."""
        return self.adapts and self.value > LIMITS[0]

    def scaled(self, loss: Callable[..., LossTerms]) -> Callable[..., LossTerms]:
        """Return the loss with `total` multiplied by the value at the time of the call."""

        def scaled_loss(*piece: Any) -> LossTerms:
            terms = loss(*piece)
            return terms._replace(total=terms.total * self.value)

        return scaled_loss if self.adapts else loss

    def unscale(self, parameters: Iterable[Tensor]) -> None:
        """Divide the gradients by the value; overflowed ones stay infinite or NaN."""
        if self.value != NO_SCALE:
            amp.scale_gradients_(parameters, 1.0 / self.value)

    def update(self, finite: bool) -> None:
        """Choose the next value by whether the gradients of an update were finite."""
        if not self.adapts:
            return
        self.finite_updates = self.finite_updates + 1 if finite else 0
        if not finite:
            before, self.value = self.value, max(self.value * BACKOFF, LIMITS[0])
            log.info("loss scale %g -> %g", before, self.value)
        elif self.finite_updates == GROWTH_INTERVAL:
            self.value, self.finite_updates = min(self.value * GROWTH, LIMITS[1]), 0
