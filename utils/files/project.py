"""Where the project lies; every path to a file that it ships starts here."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
