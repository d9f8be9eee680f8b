"""Loss terms as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from backend import ops


def arrays_of(terms: Any) -> dict[str, np.ndarray]:
    """The losses of `LossTerms` by name in their order, then "total"."""
    named = {**terms.by_name, "total": terms.total}
    return {name: ops.to_numpy(term) for name, term in named.items()}
