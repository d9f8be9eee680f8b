"""Settings as plain values, for YAML and JSON files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from utils.cli.train_config import PROCESS_SETTINGS, TrainConfig


def as_document(config: Any) -> dict[str, Any]:
    """A settings object as plain YAML and JSON values."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in dataclasses.asdict(config).items()
    }


def run_settings(config: TrainConfig) -> dict[str, Any]:
    """Those that hold for a run, however often it was interrupted, as plain values."""
    return {k: v for k, v in as_document(config).items() if k not in PROCESS_SETTINGS}
