"""The worker's end of its socket to the front process.

Before: `utils/serve/worker_process.py` made the pair. After: `worker.py` answers what it receives.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import Any

from utils.serve.frames import BrokenFrameError, Frame, read_frame, start_of


class Link:
    """Frames in and out; threads may send at the same time."""

    def __init__(self, end: socket.socket) -> None:
        self._socket, self._file = end, end.makefile("rb")
        self._sending = threading.Lock()

    def receive(self) -> Frame | None:
        """Wait for a frame; None if the front process is gone, also in the middle of one."""
        try:
            return read_frame(self._file)
        except (ConnectionError, BrokenFrameError):
            return None

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame; OSError if the front process is gone."""
        with self._sending:
            self._socket.sendall(start_of(header, len(body)))
            self._socket.sendall(body)
