"""Images per second of a server of models, compared with the same model in a plain loop.

    python -m benchmarks.serve --weights yolov5n.pt --source images/ --img 640 --device cpu

The reference is `models.load`, called with one file after the other. The others are detect.py's
pipeline without written files, and the real server with a client in another process: once with as
many requests as it answers, then with twice as many, of which it refuses half. All are given the
same files; on a CPU all run the ONNX file that the server would make of the weights. The lines
after the table tell the latency of the requests that were accepted, how many were refused (429) or
lost, the memory of the server and its worker before and after, and their processor time per answer:
compared with that of the loop it shows what serving costs on a machine that others use too.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import contextlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import models
from backend.checks import CPU
from backend.words import count
from benchmarks.detect import Detected
from benchmarks.side_by_side import Timing, choose_device, finish, new_parser, rows_of
from detect import place_of
from utils.cli.detect_config import DetectConfig
from utils.cli.flags import from_one
from utils.comparison.load import TICKS, LoadWatch
from utils.errors import WorkerError
from utils.export.formats import is_exported
from utils.media.finding import find_sources
from utils.processes.command import run_command
from utils.processes.process_family import descendants
from utils.weights.detecting import load_all_to_detect

POLL_SECONDS = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")
LOOP, DETECT, SERVED, TWICE = "plain loop", "detect --nosave", "served", "served, twice as many"


class Load(NamedTuple):
    """What a client saw of a server, and what that took.

    Attributes:
        seconds: until the last answer.
        seen: status and seconds of each request.
        before, after: bytes of the server's processes.
        processor: seconds of processor time that they took.
    """

    seconds: float
    seen: list[tuple[int, float]]
    before: int
    after: int
    processor: float

    @property
    def accepted(self) -> list[float]:
        """The milliseconds of each request that was answered."""
        return [1000 * seconds for status, seconds in self.seen if status == 200]

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.accepted) / self.seconds

    def words(self) -> str:
        """Return the latency, refusals, losses and memory in one line."""
        statuses = Counter(status for status, _ in self.seen)
        refused, answered = statuses.pop(429, 0), statuses.pop(200, 0)
        median, p95, p99 = np.percentile(self.accepted or [np.nan], [50, 95, 99])
        return (
            f"{len(self.seen)} requests in {self.seconds:.1f} s: {answered} answered, "
            f"{self.rate:.1f} a second; latency median {median:.0f} ms, p95 {p95:.0f} ms, "
            f"p99 {p99:.0f} ms; {refused} refused, {sum(statuses.values())} lost; memory "
            f"{self.before / 1e6:.0f} MB before, {self.after / 1e6:.0f} MB after; "
            f"{1000 * self.processor / max(1, answered):.0f} ms of processor time an answer"
        )


class Server:
    """A running server, and clients that ask it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, files: Sequence[str]) -> None:
        self._process, self._log, self._files = process, log, files
        self._port = self._told(r"listening on .*:(\d+)")
        self._told("(ready): ")

    def _told(self, pattern: str) -> str:
        """Wait until the log says something; return the group of the pattern."""
        while True:
            if found := re.search(pattern, self._log.read_text(encoding="utf-8")):
                return found[1]
            if self._process.poll() is not None:
                raise WorkerError(f"the server ended:\n{self._log.read_text(encoding='utf-8')}")
            time.sleep(POLL_SECONDS)

    def ask(self, seconds: float, rate: float = 0) -> Load:
        """Have a client send the files; rate as `serve_client.py` says."""
        words = [self._port, str(seconds), str(rate), *self._files]
        before, spent = self._bytes(), self._processor_seconds()
        line = [sys.executable, "-m", "benchmarks.serve_client", *words]
        told = json.loads(subprocess.run(line, capture_output=True, check=True).stdout)
        spent = self._processor_seconds() - spent
        return Load(told["seconds"], told["seen"], before, self._bytes(), spent)

    def _bytes(self) -> int:
        """Return the memory that the processes of the server have in use."""
        return sum(int(text.split()[1]) * PAGE for text in self._files_of_processes("statm"))

    def _processor_seconds(self) -> float:
        """Return the processor time that they have taken."""
        rows = [text.rpartition(")")[2].split() for text in self._files_of_processes("stat")]
        return sum(int(row[11]) + int(row[12]) for row in rows) / TICKS  # user and system

    def _files_of_processes(self, name: str) -> list[str]:
        processes = [self._process.pid, *descendants(self._process.pid)]
        return [Path(f"/proc/{number}/{name}").read_text() for number in processes]


@contextlib.contextmanager
def running(flags: argparse.Namespace, weights: str, files: Sequence[str]) -> Iterator[Server]:
    """Run a server in the block."""
    line = [sys.executable, "-m", "utils.serve", "--port", "0", "--weights", weights]
    line += ["--img", str(flags.img), "--device", flags.device]
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield Server(process, Path(log.name), files)
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def served_file(flags: argparse.Namespace) -> Iterator[str]:
    """Yield what all are given: on a CPU an ONNX file of the weights, which takes any size."""
    if is_exported(flags.weights) or flags.device != CPU:
        yield flags.weights
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, Path(flags.weights).name)
        copy.symlink_to(Path(flags.weights).absolute())
        line = [sys.executable, "export.py", "--weights", str(copy), "--dynamic"]
        subprocess.run([*line, "--imgsz", str(flags.img)], check=True, stdout=subprocess.DEVNULL)
        yield str(copy.with_suffix(".onnx"))


def timed(run: Callable[[], object], number: int) -> float:
    """Return the images per second of a run through so many files."""
    start = time.perf_counter()
    run()
    return number / (time.perf_counter() - start)


def detecting(flags: argparse.Namespace, weights: str, device: str) -> Detected:
    """Return detect.py's pipeline."""
    from models.inference.job import make_detector
    from models.inference.predictor import class_names_of

    config = DetectConfig(weights=(weights,), image_size=flags.img, device=device)
    loaded = load_all_to_detect([weights], several=True)
    sources = find_sources(place_of(flags.source), config.max_pixels)[: flags.images]
    detector = make_detector(config, loaded)
    class_names = class_names_of(loaded[0], detector.predictor.head.num_classes)
    return Detected(detector, class_names, sources, config)


def measure(
    flags: argparse.Namespace, weights: str, device: str
) -> tuple[dict[str, list[float]], list[Load]]:
    """Return the images per second of each way, and the loads of twice as many requests."""
    pipeline = detecting(flags, weights, device)
    detector = models.load(weights, device=device)
    files = [str(source.name) for source in pipeline.sources]

    def loop() -> None:
        for file in files:
            detector(file, size=flags.img)

    rates: dict[str, list[float]] = {LOOP: [], DETECT: [], SERVED: [], TWICE: []}
    loads = []
    with running(flags, weights, files) as server:
        server.ask(seconds=1)
        for _ in range(flags.repeats):
            spent = time.process_time()
            rates[LOOP].append(timed(loop, len(files)))
            spent = 1000 * (time.process_time() - spent) / len(files)
            print(f"{LOOP}: {spent:.0f} ms of processor time an image")
            rates[DETECT].append(timed(pipeline.unwritten, len(files)))
            rates[SERVED].append(server.ask(flags.seconds / 4).rate)
            loads.append(server.ask(flags.seconds, 2 * rates[SERVED][-1]))
            rates[TWICE].append(loads[-1].rate)
    return rates, loads


def timings_of(case: str, rates: dict[str, list[float]], others: float | None) -> list[Timing]:
    """Return the milliseconds per image of each way."""
    spent = {
        name: [1000 / rate if rate else math.inf for rate in found] for name, found in rates.items()
    }
    return rows_of(case, spent, next(iter(spent)), others)


def main() -> None:
    parser = new_parser("serve", "Images per second of a server of models.", repeats=1)
    add = parser.add_argument
    add("--weights", required=True, metavar="F")
    add("--source", default="shapes", metavar="S", help="images, as detect.py takes them")
    add("--img", type=from_one, default=640, metavar="PX")
    add("--images", type=from_one, default=64, metavar="N", help="only the first N")
    add("--seconds", type=from_one, default=60, metavar="S", help="of twice the requests")
    flags = parser.parse_args()
    flags.device = device = choose_device(flags)
    load = LoadWatch()
    with served_file(flags) as weights:
        rates, loads = measure(flags, weights, device)
    case = f"{count(flags.images, 'image')}, {flags.img} px"
    timings = timings_of(case, rates, load.others())
    finish(flags, timings, device)
    for timing in timings:
        print(f"{timing.name}: {1000 / timing.median:.1f} images/s")
    for one in loads:
        print(f"{TWICE}: {one.words()}")


if __name__ == "__main__":
    run_command(main)
