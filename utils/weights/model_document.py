"""The model YAML that --cfg gives a plain state dict, with the number of classes of its head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from utils.errors import UserError
from utils.files.models import block_of
from utils.weights.public_heads import PUBLIC_HEADS


def complete_document(
    document: Mapping[str, Any], layers: int, arrays: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return a model YAML of `layers` layers with the number of classes of a plain state dict."""
    head, prefix = PUBLIC_HEADS.get(block_of(document)), f"model.{layers - 1}"
    classes = None if head is None else head.classes(arrays, f"{prefix}.")
    if classes is None:
        raise UserError(
            f"--cfg: the weights have no head of this YAML at {prefix}; give the YAML of their "
            "model"
        )
    return {**document, "nc": classes}
