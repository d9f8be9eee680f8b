"""Ways to wait are timed in turns, each in a process that has its variables alone."""

import json
import signal
import subprocess

from backend.openmp import WAITING
from benchmarks import waiting


def test_each_way_is_a_process_with_its_own_variables(monkeypatch, tmp_path):
    environments = []

    def run(command, env, **_):
        environments.append({name: env[name] for name in WAITING if name in env})
        milliseconds = 4.0 if environments[-1] == {"OMP_WAIT_POLICY": "PASSIVE"} else 8.0
        document = {"timings": [{"median": milliseconds}]}
        with open(command[command.index("--json") + 1], "w") as file:
            json.dump(document, file)

    monkeypatch.setattr(waiting.subprocess, "run", run)
    monkeypatch.setenv("KMP_BLOCKTIME", "7")
    monkeypatch.setattr(waiting.LoadWatch, "others", lambda watch: 0.7)
    timings = waiting.time_ways("case", [], rounds=2)
    assert environments == [*waiting.WAYS.values()] * 2
    assert [timing.ratio for timing in timings[:3]] == [1.0, 0.5, 1.0]
    assert timings[1].runs == 2 and timings[1].others == 0.7


def test_busy_processes_end_with_the_block(monkeypatch):
    started, start = [], subprocess.Popen
    monkeypatch.setattr(
        waiting.subprocess, "Popen", lambda command: started.append(start(command)) or started[-1]
    )
    with waiting.busy_processes(2):
        assert [process.poll() for process in started] == [None, None]
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2
