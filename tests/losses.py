"""Loss terms as arrays."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from duet.backend import ops
from duet.models.heads.base import LossSettings
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters


def loss_settings(image_size: int = 640, options: Any = (), **hyp: float) -> LossSettings:
    """Settings of the usual recipe with some other hyper-parameters, and some options."""
    found = dataclasses.replace(read_hyperparameters(DEFAULT_HYPERPARAMETERS), **hyp)
    return LossSettings(found.loss_gains(), image_size, **dict(options))


def arrays_of(terms: Any) -> dict[str, np.ndarray]:
    """The losses of `LossTerms` by name in their order, then "total"."""
    named = {**terms.by_name, "total": terms.total}
    return {name: ops.to_numpy(term) for name, term in named.items()}
