"""Servers in processes of their own, their logs, and clients that ask them.

Two are for all tests that only ask them something. What needs the bound backend is imported late.
"""

import contextlib
import dataclasses
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import cv2
import pytest

from duet.utils.project import PROJECT
from duet.utils.system.machine import descendants
from tests.environments import wait_until

SECONDS = 60.0  # for what takes a few
DETECT = "/v1/detect"
SIZE = 64


def image_file(height: int = 64, width: int = 96, suffix: str = ".png") -> bytes:
    from tests.small import noise

    return cv2.imencode(suffix, noise(height, width))[1].tobytes()


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """Status and code of an error."""
        assert list(self.json) == ["error"] and list(self.json["error"]) == ["code", "message"]
        return self.status, self.json["error"]["code"]


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.port = int(re.search(r":(\d+)$", self.wait_for("listening on "))[1])
        self.root = f"http://127.0.0.1:{self.port}"

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
        path: str = DETECT,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
    ) -> Reply:
        """Ask over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        with contextlib.closing(connection):
            method = method or ("GET" if body is None else "POST")
            with contextlib.suppress(ConnectionError):  # refused before all of the body was sent
                connection.request(method, path, body, dict(headers or {}))
            return reply_of(connection.getresponse())

    def send(self, text: bytes) -> Reply:
        """Send bytes on a connection, and read the answer."""
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as connection:
            connection.sendall(text)
            with http.client.HTTPResponse(connection) as answer:
                answer.begin()
                return reply_of(answer)

    @property
    def worker(self) -> int:
        """The process with the models."""
        (found,) = (process.pid for process in descendants(self.process.pid))
        return found

    def until_ready(self) -> None:
        wait_until(lambda: self.ask("/readyz").status == 200)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


def reply_of(answer: http.client.HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return Reply(answer.status, headers, answer.read())


def start(*flags: object, **environ: str) -> subprocess.Popen:
    """Start a server on a free port."""
    return subprocess.Popen(
        [sys.executable, "-m", "duet", "serve", "--port", "0", *map(str, flags)],
        cwd=PROJECT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def running(*flags: object, ready: bool = True) -> Iterator[Server]:
    """A server of small images on the CPU that is there in the block."""
    with start("--img", SIZE, "--device", "cpu", *flags) as process:
        try:
            server = Server(process)
            if ready:
                server.wait_for("ready: ")
            yield server
        finally:
            process.kill()
            server.reader.join(SECONDS)


HOSTILE = "<img src=x onerror=document.title='hit'>\u202e\"'&amp;"
TOKENS = ("0123456789abcdef", "another-token-of-a-client==")
MAX_BYTES = 100_000
MAX_PIXELS = 70_000


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """Files of a detector, a segmenter, a classifier and an anchor-free one, by model name."""
    from tests.small import (
        tiny_segmenter,
        write_checkpoint,
        write_tiny_classifier,
        write_tiny_free_weights,
        write_tiny_weights,
    )

    folder = tmp_path_factory.mktemp("weights")
    masks = tiny_segmenter(folder)
    header = dataclasses.replace(masks.header, class_names=(HOSTILE, *"abcd"))
    masks = dataclasses.replace(masks, header=header)
    return {
        "day": write_tiny_weights(folder),
        "masks": write_checkpoint(
            folder / "masks.safetensors", dataclasses.replace(masks, header=header)
        ),
        "kinds": write_tiny_classifier(folder),
        "free": write_tiny_free_weights(folder),
    }


@pytest.fixture(scope="session")
def server(weights):
    models = [f"{name}={path}" for name, path in weights.items()]
    limits = ["--max-bytes", MAX_BYTES, "--max-pixels", MAX_PIXELS]
    with running("--weights", *models, *limits) as found:
        yield found


@pytest.fixture(scope="session")
def guarded(weights, tmp_path_factory):
    """A server that other machines may ask, with a token."""
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text("\n".join(TOKENS) + "\n")
    with running("--weights", weights["day"], "--token-file", file, "--host", "0.0.0.0") as found:
        yield found
