"""A run is a process group of its own, ended whole, and measured from outside with its load."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from duet.utils.comparison import load
from duet.utils.comparison.load import LoadWatch
from duet.utils.comparison.runs import Outcome, describe_run, rise, run_process
from duet.utils.comparison.settings import Cell, Turn
from duet.utils.system.machine import descendants
from tests.environments import has_ended, wait_until

# Starts a process that would outlive it, if wanted in a session of its own, and names it.
PARENT = (
    "import subprocess, sys, time; "
    "p = subprocess.Popen(['sleep', '100'], start_new_session={session}); "
    "print(p.pid, flush=True); time.sleep({seconds}); sys.exit(3)"
)


def run(tmp_path, code, timeout=60, watch=lambda: None):
    command = [sys.executable, "-c", code]
    return run_process(command, tmp_path / "log", timeout, "cpu", watch)


def test_run_reports_output_exit_code_time_and_memory(tmp_path):
    own = b"x" * (300 << 20)  # of this process, and no part of the other's
    child = "import time; x = b'x' * (80 << 20); time.sleep(0.5)"  # in a session of its own
    code = (
        "import subprocess, sys; print('$HOME; true', flush=True); "
        f"subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True); sys.exit(3)"
    )
    outcome = run(tmp_path, code)
    del own
    assert (outcome.exit_code, outcome.timed_out) == (3, False)
    assert (tmp_path / "log").read_text() == "$HOME; true\n"
    assert 80 < outcome.peak_host_mib < 250
    assert 0 < outcome.seconds < 60
    assert outcome.peak_device_mib is None
    with pytest.raises(OSError, match="absent"):
        run_process(["/absent"], tmp_path / "log", 60, "cpu")


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize(("seconds", "timeout"), [(0, 60), (100, 0.7)])
def test_ended_or_timed_out_run_leaves_no_process(tmp_path, seconds, timeout, session):
    outcome = run(tmp_path, PARENT.format(seconds=seconds, session=session), timeout)
    assert outcome.timed_out is (timeout < 1)
    assert outcome.exit_code == (-signal.SIGTERM if outcome.timed_out else 3)
    wait_until(lambda: has_ended(int((tmp_path / "log").read_text())))


def test_interrupt_ends_the_run_and_propagates(tmp_path):
    def interrupt():
        if (tmp_path / "log").read_text().endswith("\n"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, PARENT.format(seconds=100, session=True), watch=interrupt)
    wait_until(lambda: has_ended(int((tmp_path / "log").read_text().split()[0])))


def test_run_does_not_outlive_its_killed_parent(tmp_path):
    program = (
        "import sys; from pathlib import Path; "
        "from duet.utils.comparison.runs import run_process; "
        f"run_process({['sleep', '100']!r}, Path({str(tmp_path / 'log')!r}), 60, 'cpu')"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as runner:
        started = []
        while not started or Path(f"/proc/{started[0]}/comm").read_text() != "sleep\n":
            assert runner.poll() is None
            time.sleep(0.02)
            started = [process.pid for process in descendants(runner.pid)]
        runner.kill()
    wait_until(lambda: has_ended(started[0]))


@pytest.mark.parametrize(
    ("devices", "asked", "lines", "mib"),
    [
        ("cuda:1", "-i 5 ", "100 1700 900", 1600),
        ("0,1", "-i 3,5 ", "100 2000 400 2500 300 2600 350", 300 + 600),
        ("0,1", "-i 3,5 ", "100", None),
    ],
)
def test_device_memory_is_the_rise_in_nvidia_smi(tmp_path, monkeypatch, devices, asked, lines, mib):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\n"
                       f"for mib in {lines}; do echo $mib; done; exec sleep 100\n")  # fmt: skip
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    outcome = run_process([sys.executable, "-c", ""], tmp_path / "log", 60, devices)
    assert outcome.peak_device_mib == mib
    assert asked in (tmp_path / "asked").read_text()
    assert rise(tmp_path / "absent", 1) is None


@pytest.mark.parametrize(
    ("printed", "outcome", "failure"),
    [
        ("begin\nerror: the first\nrank 1: error: no file\nthe end\n", (2, False),
         "exit code 2: rank 1: error: no file"),
        ("Traceback:\n 0/9\r 5/9\rValueError: 3\n  \n\n", (2, False), "exit code 2: ValueError: 3"),
        ("", (-9, False), "ended by signal 9"),
        ("suspended; go on\n", (75, True), "ended after 61 s, the limit of --timeout"),
        ("error: an old one\n", (0, False), None),
    ],
)  # fmt: skip
def test_failure_is_described_by_the_last_error_line(tmp_path, printed, outcome, failure):
    log = tmp_path / "log"
    log.write_text(printed)
    code, timed_out = outcome
    turn = Turn(Cell("torch", "plain", 4), 1)
    run = describe_run(turn, [], Outcome(code, timed_out, 61.0, 1, 1, None), log)
    assert run["failure"] == failure
    assert run["log_tail"][-1:] == ([] if not (failure and printed) else
        [printed.rstrip("\n").split("\n")[-1].rpartition("\r")[2]])  # fmt: skip


@pytest.mark.parametrize(("users", "seen"), [(None, "0"), ("1", "1")])
def test_runs_disable_tf32_unless_the_user_sets_it(tmp_path, monkeypatch, users, seen):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    if users is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", users)
    assert run(tmp_path, "import os; print(os.environ['NVIDIA_TF32_OVERRIDE'])").exit_code == 0
    assert (tmp_path / "log").read_text() == f"{seen}\n"


WORK = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass"


class System:
    """Time, and what others take of it on a machine of four cores, of which two are usable."""

    def __init__(self, monkeypatch, folder):
        self.ticks_per_second = os.sysconf("SC_CLK_TCK")
        self.file, self.ticks, self.now = folder / "stat", 1000, 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(psutil, "PROCFS_PATH", str(folder))
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
        monkeypatch.setattr(load, "_own_seconds", lambda: 5.0)
        self.take(0)

    def take(self, seconds):
        self.ticks += int(seconds * self.ticks_per_second)
        idle = 10**7  # and iowait, guest: no work, or counted as that of a user
        core = f"{self.ticks} 0 0 {idle} {idle} 0 0 0 {idle} 0"
        far = f"{10**6 * self.ticks} 0 0 0 0 0 0 0 0 0"
        self.file.write_text(f"cpu 1 2 3\ncpu0 {core}\ncpu1 0 {core}\ncpu2 {far}\nintr 5\n")


def test_load_counts_only_other_processes_on_usable_cores(monkeypatch, tmp_path):
    system = System(monkeypatch, tmp_path)
    watch = LoadWatch()
    system.now += 0.01
    assert watch.others() is None  # too short: a tick or two would be more than the cores have
    system.now += 9.99
    assert watch.others() == 0
    system.take(6)  # on either core
    assert watch.others() == pytest.approx(1.2)


def test_own_and_child_work_is_not_counted_as_foreign_load():
    before = load._own_seconds()
    subprocess.run([sys.executable, "-c", WORK], check=True)
    ended = load._own_seconds()
    assert ended - before > 0.5
    with subprocess.Popen([sys.executable, "-c", WORK + "\ninput()"], stdin=subprocess.PIPE) as one:
        wait_until(lambda: load._own_seconds() - ended >= 0.5)
        one.stdin.close()
        one.wait()
    assert load._own_seconds() - ended > 0.5
