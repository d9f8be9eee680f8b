"""Settings as plain values, for YAML and JSON files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from utils.cli.train_config import PROCESS_SETTINGS, TrainConfig


def as_document(config: Any) -> dict[str, Any]:
    """Return a settings object as plain YAML and JSON values."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in dataclasses.asdict(config).items()
    }


def run_settings(config: TrainConfig) -> dict[str, Any]:
    """Return, as plain values, the settings of a run, however often it was interrupted."""
    return {k: v for k, v in as_document(config).items() if k not in PROCESS_SETTINGS}
