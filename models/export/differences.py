"""How much a file differs from the model over all images, and a batch of both.

Before: `verify.py` runs the file. After: `rows_compared.py` and its neighbours note what differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backend.words import count
from models.export.compared import Tolerance
from models.export.matched import Limits
from models.export.trials import Trial
from utils.runtimes.metadata import Metadata
from utils.runtimes.runtime import Outputs

SCORES, PIXELS, MASKS = "scores", "boxes", "1 - IoU of masks"
UNITS = {PIXELS: " px"}


@dataclass
class Verified:
    """How far a file is from the model, over all images.

    Attributes:
        largest: the largest differences by what differs, in the unit of `UNITS`; of rows where the
            file gives them, else of what both find; without images that the file resizes.
        num_found: detections of the model, or images.
        num_matched: of how many of them the file has the same.
        things: what they are.
        fault: what is beyond the tolerance; "" if nothing is.
        failing: the trial in which that is; None if the metadata is wrong.
    """

    largest: dict[str, float] = dataclasses.field(default_factory=dict)
    num_found: int = 0
    num_matched: int = 0
    things: str = "detection"
    fault: str = ""
    failing: Trial | None = None

    def note(self, name: str, difference: float) -> None:
        """Take a difference: the largest of a name stays."""
        self.largest[name] = max(self.largest.get(name, 0.0), difference)

    @property
    def differences(self) -> str:
        parts = (f"{name} {value:.2g}{UNITS.get(name, '')}" for name, value in self.largest.items())
        return ", ".join(parts)

    @property
    def matches(self) -> str:
        return f"{self.num_matched:,} of {count(self.num_found, self.things)}"


class Batch(NamedTuple):
    """What a file predicts in the images of a trial, and how far it may be from the model."""

    trial: Trial
    found: Sequence[Outputs]  # of each image, without the batch
    metadata: Metadata
    limits: Limits
    tolerance: Tolerance

    def noting(self, result: Verified) -> Verified:
        """Return where differences are noted: not in result if the file resized the images."""
        return Verified() if self.trial.is_resized else result
