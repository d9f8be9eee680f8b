"""The log line of a request: one line of JSON, with nothing from the image."""

from __future__ import annotations

import json
import logging
import secrets
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

log = logging.getLogger("serve")
UNKNOWN_PATH = "other"  # a path that is not ours may hold anything
ID_BYTES = 8


@dataclass
class Record:
    """A request, and what is known of it so far."""

    method: str
    path: str  # one of ours, or UNKNOWN_PATH
    id: str = field(default_factory=lambda: secrets.token_hex(ID_BYTES))
    started: float = field(default_factory=time.monotonic)
    status: int = 0  # 0: the client went before the answer
    model: str | None = None
    bytes: int | None = None  # that came
    pixels: int | None = None
    count: int | None = None  # of what was found
    milliseconds: dict[str, float] = field(default_factory=dict)  # by stage
    code: str | None = None  # of an error

    @property
    def seconds(self) -> float:
        """The time since its head came."""
        return time.monotonic() - self.started

    def line(self) -> str:
        """Return the line of the log; what is not known is left out."""
        stages = {**self.milliseconds, "request": self.seconds * 1e3}
        values: dict[str, Any] = {
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "id": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "code": self.code,
            "model": self.model,
            "bytes": self.bytes,
            "pixels": self.pixels,
            "count": self.count,
            "milliseconds": {name: round(value, 2) for name, value in stages.items()},
        }
        return json.dumps({name: value for name, value in values.items() if value is not None})

    def write(self) -> None:
        """Write the line."""
        log.info(self.line())
