"""benchmarks.serve: what a client sees of a server, and what is told of it."""

import json
import subprocess
import sys

from benchmarks.serve import Load, timings_of
from tests.unit.serve.running import image_file, running
from utils.files.project import PROJECT


def seen_by_client(server, file, seconds, rate):
    words = [str(server.port), str(seconds), str(rate), str(file)]
    line = [sys.executable, "-m", "benchmarks.serve_client", *words]
    done = subprocess.run(line, cwd=PROJECT, capture_output=True, check=True)
    return json.loads(done.stdout)["seen"]


def test_a_client_counts_answers_refusals_and_losses(tmp_path):
    file = tmp_path / "image.jpg"
    file.write_bytes(image_file())
    with running("--weights", "slow=x", "--max-queue", 2) as server:
        seen = seen_by_client(server, file, seconds=0.5, rate=20)
        assert len(seen) == 10  # half a second of twenty a second
        statuses = [status for status, _ in seen]
        assert set(statuses) == {200, 429}
        assert all(seconds >= 0.3 for status, seconds in seen if status == 200)  # SLOW_SECONDS
        server.end()
        assert {status for status, _ in seen_by_client(server, file, 0.1, 50)} == {0}


def test_what_is_told_of_a_load():
    seen = [(200, 0.001 * number) for number in range(1, 102)] + [(429, 0.0)] * 3 + [(0, 1.0)]
    load = Load(10.1, seen, 100_000_000, 102_400_000, processor=10.1)
    assert load.words() == (
        "105 requests in 10.1 s: 101 answered, 10.0 a second; latency median 51 ms, p95 96 ms, "
        "p99 100 ms; 3 refused, 1 lost; memory 100 MB before, 102 MB after; "
        "100 ms of processor time an answer"
    )


def test_ratios_are_those_of_the_times_of_an_image():
    loop, served = timings_of("case", {"loop": [10.0, 20.0, 25.0], "served": [25.0]}, None)
    assert (loop.median, loop.fastest, loop.slowest, loop.ratio) == (50.0, 40.0, 100.0, 1.0)
    assert (served.median, served.runs, served.ratio) == (40.0, 1, 0.8)
