"""A client of a server of models, in a separate process; `serve.py` reads its output.

    python -m benchmarks.serve_client PORT SECONDS RATE FILE ...

It posts the files in turns. With a RATE it sends so many requests per second, whatever becomes of
them; with RATE 0 each of its threads sends its next one when the last one is answered. It
prints one line of JSON: the seconds that passed, and of each request its status and seconds. A
request without an answer has the status 0.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import contextlib
import http.client
import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from utils.cli.flags import new_parser
from utils.processes.command import run_command
from utils.screen.text import say

CLOSED = 12  # requests at once of a client that waits for answers: they keep four cores busy
OPEN = 160  # those of one that does not: more than a server holds
PATIENCE = 120.0  # seconds


class Client:
    """Threads that share a schedule."""

    def __init__(self, port: int, images: Sequence[bytes], seconds: float, rate: float) -> None:
        self._port, self._rate = port, rate
        self._images = itertools.cycle(images)
        self._numbers = itertools.count()
        self._next = threading.Lock()
        self._start = time.monotonic()
        self._end = self._start + seconds
        self.seen: list[tuple[int, float]] = []  # status and seconds of each request

    def run(self) -> float:
        """Send until the time is over; return the seconds until the last answer."""
        number = OPEN if self._rate else CLOSED
        threads = [threading.Thread(target=self._send_all) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - self._start

    def _send_all(self) -> None:
        for image in self._due():
            sent = time.perf_counter()
            try:
                status = self._send(image)
            except (OSError, http.client.HTTPException):
                status = 0
            self.seen.append((status, time.perf_counter() - sent))

    def _send(self, image: bytes) -> int:
        """Send a request on a connection of its own; return the status of its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.connect()
            # A server that refuses need not read the image: the answer is there all the same.
            with contextlib.suppress(ConnectionError):
                connection.request("POST", "/v1/detect", image)
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def _due(self) -> Iterator[bytes]:
        """Yield an image whenever one is to be sent by this thread."""
        while True:
            with self._next:
                number, image = next(self._numbers), next(self._images)
            due = self._start + number / self._rate if self._rate else time.monotonic()
            if due >= self._end:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            yield image


def main() -> None:
    parser = new_parser("python -m benchmarks.serve_client", "Ask a server about images.")
    parser.add_argument("port", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("rate", type=float, help="requests per second; 0: as many as are answered")
    parser.add_argument("files", type=Path, nargs="+")
    args = parser.parse_args()
    images = [file.read_bytes() for file in args.files]
    client = Client(args.port, images, args.seconds, args.rate)
    passed = client.run()
    say(json.dumps({"seconds": passed, "seen": client.seen}))


if __name__ == "__main__":
    run_command(main)
