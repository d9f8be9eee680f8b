"""Lines between the watchdogs of a job, over TCP: the job's token first, then messages in JSON.

The kernel notices a lost machine or network, also while Python is busy.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

BEAT_SECONDS = 1.0
POLL_SECONDS = 0.2
LINGER_SECONDS = 2.0  # in which the others learn why the job ends
GONE_SECONDS = 30  # without an answer from the other machine
MAX_LINE_BYTES = 4096
ATTEMPTS, PAUSE_SECONDS = 300, 0.1


class Link:
    """This end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._unread = b""
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, GONE_SECONDS // 5),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * GONE_SECONDS),
        ):
            connection.setsockopt(level, option, value)

    def send(self, **message: Any) -> None:
        """Send a message; drop it if the connection is full or gone, which `read` reports."""
        self.send_line(json.dumps(message).encode())

    def send_line(self, line: bytes) -> None:
        try:
            self.socket.send(line + b"\n", socket.MSG_DONTWAIT)
        except OSError:
            return

    def read(self) -> dict[str, Any]:
        """Return the next message; errors as `read_line`."""
        try:
            message = json.loads(self.read_line())
        except RecursionError:
            raise ValueError("a line that is nested too deeply") from None
        if not isinstance(message, dict):
            raise ValueError("a line that is no object")
        return message

    def read_line(self) -> bytes:
        """Return the next line; wait for it as long as the socket's timeout allows.

        Raises:
            EOFError: the process at the other end is gone.
            ValueError: this is not the protocol.
            OSError: its machine cannot be reached; without an errno it is the socket's timeout.
        """
        while b"\n" not in self._unread:
            if len(self._unread) > MAX_LINE_BYTES:
                raise ValueError("a line that is too long")
            self._receive()
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def finish(self) -> None:
        """Close the sending direction; what was sent still arrives."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _receive(self) -> None:
        try:
            received = self.socket.recv(MAX_LINE_BYTES)
        except ConnectionError as error:
            raise EOFError from error
        if not received:
            raise EOFError
        self._unread += received


def listening_host(machines: int) -> str:
    """Return where rank 0 listens: on this machine only, or at the address known to the others."""
    if machines == 1:
        return "127.0.0.1"
    try:
        address = socket.gethostbyname(os.environ["MASTER_ADDR"])
        socket.create_server((address, 0)).close()
    except OSError:  # only the other machines can use this address
        return ""
    return "" if address.startswith("127.") else address  # some machines give themselves 127.*


def connect(machines: int, port: int, token: str, **hello: Any) -> Link:
    """Connect to rank 0, from any machine of the job; return when it has answered.

    Rank 0 turns the oldest of many strangers away, and one that has not yet named the token is a
    stranger: a rank that meets a flood of them tries again.

    Raises:
        OSError: rank 0 cannot be reached.
        ConnectionError: rank 0 does not accept this rank.
    """
    host = "127.0.0.1" if machines == 1 else os.environ["MASTER_ADDR"]
    for _ in range(ATTEMPTS):
        link = Link(socket.create_connection((host, port), timeout=GONE_SECONDS))
        link.send_line(token.encode())
        link.send(**hello)
        try:
            link.read()
            return link
        except EOFError:
            link.socket.close()
            time.sleep(PAUSE_SECONDS)
    raise ConnectionError(f"rank 0 does not accept this rank at {host}:{port}")


def rank_name(rank: int, host: str) -> str:
    """Return the name of a rank in messages."""
    return f"rank {rank} ({host})"
