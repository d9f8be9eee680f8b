"""Accept connections that know the job's token while the ranks join, and none afterwards.

Anyone who reaches the port may connect. Of a stranger no more bytes are read than the token has,
nothing is parsed and no thread is started. Of many strangers only the newest are kept.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import time

BACKLOG = 1024
MOST_STRANGERS = 64  # connected at once
BREATH_SECONDS = 0.05  # after an error of the system, such as too many open files


class Door:
    """A port of this machine.

    Args:
        host: its address; "" for all.
        token: what a connection must send first, followed by the end of a line.
    """

    def __init__(self, host: str, token: str) -> None:
        self._server = socket.create_server((host, 0), backlog=BACKLOG)
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._token = token.encode() + b"\n"
        self._strangers: dict[socket.socket, bytes] = {}  # oldest first, with what each has sent
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)

    def admit(self, seconds: float) -> list[socket.socket]:
        """Return connections that have just named the token; wait so long for something to come."""
        ready = [key.fileobj for key, _ in self._selector.select(seconds)]
        if self._server in ready:
            self._accept()
        return [stranger for stranger in list(self._strangers)
                if stranger in ready and self._names_token(stranger)]  # fmt: skip

    def close(self) -> None:
        """Close all connections without the token, and close the port."""
        for stranger in list(self._strangers):
            self._forget(stranger).close()
        self._selector.close()
        self._server.close()

    def _accept(self) -> None:
        try:
            stranger = self._server.accept()[0]
        except OSError:  # it is gone again, or no more files may be open
            # At once: a rank may wait behind hundreds of strangers.
            return self._turn_oldest_away() if self._strangers else time.sleep(BREATH_SECONDS)
        if len(self._strangers) >= MOST_STRANGERS:
            self._turn_oldest_away()
        stranger.setblocking(False)
        self._strangers[stranger] = b""
        self._selector.register(stranger, selectors.EVENT_READ)

    def _names_token(self, stranger: socket.socket) -> bool:
        """Read on; return whether the token is complete. A stranger with another one is gone."""
        try:
            received = stranger.recv(len(self._token) - len(self._strangers[stranger]))
        except OSError:
            received = b""
        self._strangers[stranger] += received
        sent = self._strangers[stranger]
        if received and len(sent) < len(self._token):
            return False
        self._forget(stranger)
        if hmac.compare_digest(sent, self._token):
            stranger.setblocking(True)
            return True
        stranger.close()
        return False

    def _turn_oldest_away(self) -> None:
        for stranger in list(self._strangers)[:1]:
            self._forget(stranger).close()

    def _forget(self, stranger: socket.socket) -> socket.socket:
        self._selector.unregister(stranger)
        del self._strangers[stranger]
        return stranger
