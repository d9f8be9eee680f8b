"""train.py --evolve as a user runs it: real trainings, a stop, and the same command again."""

import os
import signal
import subprocess
import sys

import pytest

from duet import backend
from duet.utils.processes.exit_status import EXIT_SUSPENDED
from duet.utils.project import PROJECT
from duet.utils.report.results import read_results
from tests.environments import SECONDS, wait_until
from tests.train.short_runs import short_flags

EPOCHS = 10  # a trial that lasts: the signal must find it at work


@pytest.fixture
def command(tmp_path):
    more = ("--batch", 6, "--epochs", EPOCHS, "--save-steps", 1, "--project", tmp_path / "runs")
    flags = short_flags(tmp_path, *more, "--evolve", 1, "--backend", backend.use())
    return [sys.executable, str(PROJECT / "train.py"), *flags]


def trainings_in(folder):
    """The processes whose command line names a folder."""
    found = []
    for process in os.listdir("/proc"):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                found += [process] if os.fsencode(folder) in file.read() else []
        except OSError:  # no process, or one that has ended
            continue
    return found


def test_killed_search_takes_its_trial_along(command, tmp_path):
    trial = tmp_path / "runs" / "exp" / "trials" / "trial-0000"
    search = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until((trial / "results.csv").exists)
    search.kill()
    search.wait()
    wait_until(lambda: not trainings_in(tmp_path / "runs"))
    assert "suspended after " in (trial.parent / "trial-0000.log").read_text()


def test_stopped_search_resumes_with_the_same_command(command, tmp_path):
    trial = tmp_path / "runs" / "exp" / "trials" / "trial-0000"
    search = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_until((trial / "results.csv").exists)
    search.send_signal(signal.SIGTERM)
    reported, _ = search.communicate(timeout=SECONDS)
    assert search.returncode == EXIT_SUSPENDED, reported
    assert "search suspended after 0 trials: " in reported and " --evolve 1" in reported
    assert trainings_in(tmp_path / "runs") == []
    again = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert again.returncode == 0, again.stderr
    assert "best of 1: trial 1 with fitness 0." in again.stdout
    assert "resumed after " in (trial.parent / "trial-0000.log").read_text()
    _, rows = read_results(trial / "results.csv")
    assert len(rows) == EPOCHS
    table = (tmp_path / "runs" / "exp" / "evolve.csv").read_text().splitlines()
    assert len(table) == 2 and ",1,done," in table[1]
    assert not list((trial / "weights").glob("state-*"))
