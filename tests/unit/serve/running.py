"""A server in a process of its own, its log, and clients that ask it."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import cv2
import numpy as np

from utils.files.project import PROJECT

SECONDS = 60.0  # for what takes one or two
STAND_IN = "tests.unit.serve.stand_in"


def image_file(suffix: str = ".jpg", height: int = 48, width: int = 64) -> bytes:
    """A small image in a file."""
    pixels = np.full((height, width, 3), 128, np.uint8)
    return cv2.imencode(suffix, pixels)[1].tobytes()


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, code and sentence of an error, which has nothing else."""
        assert list(self.json) == ["error"] and list(self.json["error"]) == ["code", "message"]
        return self.status, self.json["error"]["code"], self.json["error"]["message"]


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.port = int(re.search(r":(\d+)$", self.wait_for("listening on "))[1])

    def _read(self) -> None:
        with self.process.stdout as output:
            for line in output:
                self.lines.put(line.rstrip("\n"))
        self.lines.put("(end)")

    def wait_for(self, text: str) -> str:
        """The next line of the log that holds a text."""
        while True:
            line = self.lines.get(timeout=SECONDS)
            self.seen.append(line)
            if text in line:
                return line
            assert line != "(end)", "\n".join(self.seen)

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Ask over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        method = method or ("GET" if body is None else "POST")
        try:
            connection.request(method, path, body, dict(headers or {}))
            return reply_of(connection.getresponse())
        finally:
            connection.close()

    def record(self, reply: Reply) -> dict[str, Any]:
        """The line of the log that tells of an answer."""
        return json.loads(self.wait_for(reply.headers["x-request-id"]))

    def connect(self, text: bytes = b"") -> socket.socket:
        """A connection on which some bytes were sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        connection.sendall(text)
        return connection

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


def reply_of(answer: http.client.HTTPResponse) -> Reply:
    """An answer, read to its end."""
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return Reply(answer.status, headers, answer.read())


def receive(connection: socket.socket) -> Reply:
    """The next answer on a connection."""
    with http.client.HTTPResponse(connection) as answer:
        answer.begin()
        return reply_of(answer)


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side ends the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def start(
    *flags: object, command: Sequence[object] = ("-m", STAND_IN), files: int | None = None
) -> subprocess.Popen:
    """Start a server.

    command: what Python runs.
    files: how many it may have open.
    """
    limit = [] if files is None else ["prlimit", f"--nofile={files}:{files}"]
    return subprocess.Popen(
        [*limit, sys.executable, *map(str, command), "--port", "0", *map(str, flags)],
        cwd=PROJECT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def running(*flags: object, ready: bool = True, **options: Any) -> Iterator[Server]:
    """A server that is there in the block."""
    with start(*flags, **options) as process:
        try:
            server = Server(process)
            if ready:
                server.wait_for("ready: ")
            yield server
        finally:
            process.kill()
            server.reader.join(SECONDS)


def refusal(*flags: object) -> tuple[int, str]:
    """The exit code and the output of a server that does not start."""
    process = start(*flags)
    output, _ = process.communicate(timeout=SECONDS)
    return process.returncode, output
