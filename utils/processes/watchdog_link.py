"""Lines of JSON between the watchdogs of a job, over TCP.

Whoever connects must name the job's token first. A machine or network that is gone is noticed by
the kernel, which goes on while Python is busy.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

GONE_SECONDS = 30  # without any answer of the other machine
MAX_LINE_BYTES = 4096


class Peer:
    """The other end of a connection. Its methods never wait."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._unread = b""
        connection.setblocking(False)
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, GONE_SECONDS // 5),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * GONE_SECONDS),
        ):
            connection.setsockopt(level, option, value)

    def send(self, **message: Any) -> None:
        """A message, unless the connection is full or gone, which reading finds out."""
        try:
            self.socket.send(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    def read(self) -> list[dict[str, Any]]:
        """The messages that have come.

        Raises:
            EOFError: the process at the other end is gone.
            ValueError: this is not the protocol.
            OSError: its machine cannot be reached.
        """
        try:
            received = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except ConnectionError as error:
            raise EOFError from error
        if not received:
            raise EOFError
        *lines, self._unread = (self._unread + received).split(b"\n")
        if max(map(len, (*lines, self._unread))) > MAX_LINE_BYTES:
            raise ValueError("a line that is too long")
        messages = [json.loads(line) for line in lines]
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("a line that is no object")
        return messages

    def finish(self) -> None:
        """Say that nothing more will be sent; what was sent arrives."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return


def listen(machines: int) -> socket.socket:
    """A socket for the members of a job: of this machine alone, or of the address of rank 0."""
    if machines == 1:
        return socket.create_server(("127.0.0.1", 0))
    try:
        address = socket.gethostbyname(os.environ["MASTER_ADDR"])
        if not address.startswith("127."):  # as some machines call themselves
            return socket.create_server((address, 0))
    except OSError:  # an address that others know this machine by
        pass
    return socket.create_server(("", 0))


def connect(machines: int, port: int) -> Peer:
    """To the socket of `listen`, from any machine of the job."""
    host = "127.0.0.1" if machines == 1 else os.environ["MASTER_ADDR"]
    return Peer(socket.create_connection((host, port), timeout=GONE_SECONDS))
