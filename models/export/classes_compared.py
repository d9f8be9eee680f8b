"""Class probabilities of whole images: those of a file compared with those of the model.

Before: `verify.py` ran the file. After: the file's line on screen, or its fault.
"""

from __future__ import annotations

import numpy as np

from models.export.differences import Batch, Verified

PROBABILITIES = "probabilities"


def compare_logits(result: Verified, batch: Batch) -> str:
    """Compare probabilities and the best class of each image; return what is too far apart.

    Two classes may change places if their difference is within that of probabilities.
    """
    result.things = "image"
    allowed = batch.tolerance.scores
    for index, ((logits,), expected) in enumerate(
        zip(batch.found, batch.trial.outputs[0], strict=True)
    ):
        theirs, ours = probabilities(logits), probabilities(expected)
        difference = np.abs(theirs - ours)
        result.note(PROBABILITIES, float(difference.max()))
        best, wanted = int(theirs.argmax()), int(ours.argmax())
        result.num_found += 1
        result.num_matched += best == wanted
        worst = int(difference.argmax())
        if not difference[worst] <= allowed:
            return (
                f"image {index}: class {worst} has a probability of {theirs[worst]:.6g}, the "
                f"model's is {ours[worst]:.6g}; a difference of at most {allowed:g} is accepted"
            )
        if best != wanted and ours[wanted] - ours[best] > 2 * allowed:
            return f"image {index}: its best class is {best}, the model's {wanted}"
    return ""


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits (C,), float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(powers / powers.sum())
