"""What both sides of the comparison are told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One comparison; plain values, since they travel as JSON."""

    data: str  # dataset YAML
    cfg: str  # model YAML
    image_size: int
    batch_size: int
    steps: int  # optimizer steps
    golden: str | None  # folder of outputs stored from the public YOLOv5
    nudge: float = 0.0  # added to one weight: what a disagreement looks like
