"""The model YAML that --cfg gives a plain state dict, with the number of classes of its head.

Before: `utils/weights/__main__.py`. After: `models/stored.py` checks it against the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from utils.errors import UserError

BOX_OUTPUTS = 5  # cx, cy, w, h, objectness, before the classes


def complete_document(
    document: Mapping[str, Any], layers: int, arrays: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return a model YAML of so many layers with the number of classes of a plain state dict."""
    prefix = f"model.{layers - 1}"
    anchors, bias = arrays.get(f"{prefix}.anchors"), arrays.get(f"{prefix}.m.0.bias")
    if anchors is None or bias is None or anchors.ndim != 3 or not anchors.shape[1]:
        raise UserError(f"--cfg: the weights have no head at {prefix}; give the YAML of this model")
    return {**document, "nc": bias.size // anchors.shape[1] - BOX_OUTPUTS}
