"""The end of a connection whose client still sends after its answer.

Before: `connections.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

DRAIN_SECONDS = 2.0
DRAIN_BYTES = 4 << 20  # a photo of usual size, so that clients that send it whole read the answer


class LingeringTransport:
    """A transport that, closed while the client sends, drops a bounded amount of it first.

    Bytes that come for a closed connection would take the answer from the client with them.

    Attributes:
        lingers: whether it is closed, and only drops what comes.
    """

    def __init__(self, transport: asyncio.Transport, is_receiving: Callable[[], bool]) -> None:
        self._transport, self._is_receiving = transport, is_receiving
        self.lingers, self._left = False, DRAIN_BYTES

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether nothing can be sent any more."""
        return self.lingers or self._transport.is_closing()

    def close(self) -> None:
        """Send what is written, then end."""
        if self.is_closing():
            return
        if not self._is_receiving():
            self._transport.close()
            return
        self.lingers = True
        with contextlib.suppress(OSError):  # the client has gone
            self._transport.write_eof()
        self._transport.resume_reading()
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self._transport.close)

    def drop(self, data: bytes) -> None:
        """Take what came after the close."""
        self._left -= len(data)
        if self._left < 0:
            self._transport.close()
