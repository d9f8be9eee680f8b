"""Images per second of a server of models, compared with the same model in a plain loop.

    python -m benchmarks.serve --weights yolov5n.onnx --source images/ --img 640 --device cpu

The reference is `duet.load`, called with one file after the other. The others are the server with
as many requests as it answers, then with twice as many per second, of which it refuses half. The
lines after the table show the latency of accepted requests, and how many were refused (429) or
lost.
"""

import argparse
import contextlib
import http.client
import itertools
import math
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

import duet
from benchmarks.side_by_side import choose_device, finish, new_parser, rows_of
from detect import place_of
from duet import backend
from duet.utils.cli.flags import from_one
from duet.utils.comparison.load import LoadWatch
from duet.utils.detect.config import DetectConfig
from duet.utils.detect.media.finding import find_sources
from duet.utils.errors import WorkerError
from duet.utils.processes.command import run_command
from duet.utils.text import count

CLOSED = 12  # concurrent requests of a client that waits for answers: enough for four cores
OPEN = 160  # of a client that does not wait: more than a server holds
PATIENCE = 120.0  # seconds
LOOP, SERVED, TWICE = "plain loop", "served", "served, twice as many"


class Load(NamedTuple):
    """A server as seen by a client.

    Attributes:
        seconds: until the last answer.
        seen: status, 0 without an answer, and seconds of each request.
    """

    seconds: float
    seen: list[tuple[int, float]]

    @property
    def rate(self) -> float:
        """Answers per second."""
        return sum(status == 200 for status, _ in self.seen) / self.seconds

    def words(self) -> str:
        """Return the latency, refusals and losses in one line."""
        accepted = [1000 * seconds for status, seconds in self.seen if status == 200]
        statuses = Counter(status for status, _ in self.seen)
        refused, answered = statuses.pop(429, 0), statuses.pop(200, 0)
        median, p99 = np.percentile(accepted or [np.nan], [50, 99])
        return (
            f"{len(self.seen)} requests in {self.seconds:.1f} s: {answered} answered, "
            f"{self.rate:.1f} a second; latency median {median:.0f} ms, p99 {p99:.0f} ms; "
            f"{refused} refused, {sum(statuses.values())} lost"
        )


def send(port: int, image: bytes) -> int:
    """Send an image on a new connection; return the status of the answer, 0 for none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.connect()
        # A server that refuses need not read the image: the answer is there all the same.
        with contextlib.suppress(ConnectionError):
            connection.request("POST", "/v1/detect", image)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    return 0


def ask(port: int, images: Sequence[bytes], seconds: float, rate: float = 0) -> Load:
    """Send images in turns, `rate` per second; with rate 0, the next when one is answered."""
    start = time.monotonic()
    numbers = itertools.count()  # of requests, which threads share

    def send_all() -> list[tuple[int, float]]:
        seen = []
        for number in numbers:
            due = start + number / rate if rate else time.monotonic()
            if due >= start + seconds:
                return seen
            time.sleep(max(0.0, due - time.monotonic()))
            sent = time.perf_counter()
            status = send(port, images[number % len(images)])
            seen.append((status, time.perf_counter() - sent))
        return seen

    with ThreadPoolExecutor(OPEN if rate else CLOSED) as pool:
        parts = [pool.submit(send_all) for _ in range(OPEN if rate else CLOSED)]
    seen = [one for part in parts for one in part.result()]
    return Load(time.monotonic() - start, seen)


@contextlib.contextmanager
def running(flags: argparse.Namespace) -> Iterator[int]:
    """Run a server in the block; yield its port."""
    line = [sys.executable, "-m", "duet", "serve", "--port", "0", "--weights", flags.weights]
    line += ["--img", str(flags.img), "--device", flags.device, "--backend", backend.use()]
    process = subprocess.Popen(
        line, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, encoding="locale"
    )
    assert process.stdout is not None
    try:
        for text in process.stdout:
            if found := re.search(r"ready: .*:(\d+)/", text):
                break
        else:
            raise WorkerError("the server ended before it was ready")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(process.stdout.read)  # or its log would block it
            yield int(found[1])
            process.terminate()
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = new_parser("serve", "Images per second of a server of models.", repeats=1)
    add = parser.add_argument
    add("--weights", required=True, metavar="F")
    add("--source", default="shapes", metavar="S", help="images, as detect.py takes them")
    add("--img", type=from_one, default=640, metavar="PX")
    add("--images", type=from_one, default=64, metavar="N", help="only the first N")
    add("--seconds", type=from_one, default=60, metavar="S", help="time at twice the requests")
    flags = parser.parse_args()
    flags.device = device = choose_device(flags)
    watch = LoadWatch()
    detector = duet.load(flags.weights, device=device)
    sources = find_sources(place_of(flags.source), DetectConfig.max_pixels)[: flags.images]
    files = [Path(str(source.name)) for source in sources]
    images = [file.read_bytes() for file in files]
    rates: dict[str, list[float]] = {LOOP: [], SERVED: [], TWICE: []}
    lines = []
    with running(flags) as port:
        for _ in range(flags.repeats):
            start = time.perf_counter()
            for file in files:
                detector(file, size=flags.img)
            rates[LOOP].append(len(files) / (time.perf_counter() - start))
            rates[SERVED].append(ask(port, images, flags.seconds / 4).rate)
            load = ask(port, images, flags.seconds, 2 * rates[SERVED][-1])
            rates[TWICE].append(load.rate)
            lines.append(f"{TWICE}: {load.words()}")
    spent = {
        name: [1000 / rate if rate else math.inf for rate in one] for name, one in rates.items()
    }
    case = f"{count(len(files), 'image')}, {flags.img} px"
    timings = rows_of(case, spent, LOOP, watch.others(), images=1)
    finish(flags, timings, device)
    print(*lines, sep="\n")


if __name__ == "__main__":
    run_command(main)
