"""A run is a process group of its own, ended whole, and measured from outside."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from utils.comparison.measured import ArrivingRows
from utils.comparison.runner import rise, run_process
from utils.processes.process_family import descendants

# Starts a process that would outlive it, if wanted in a session of its own, and names it.
PARENT = (
    "import subprocess, sys, time; "
    "p = subprocess.Popen(['sleep', '100'], start_new_session={session}); "
    "print(p.pid, flush=True); time.sleep({seconds}); sys.exit({code})"
)


def run(tmp_path, code, timeout=60, watch=lambda: None):
    command = [sys.executable, "-c", code]
    return run_process(command, tmp_path / "log", timeout, "cpu", (watch,))


def is_gone(process):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":  # dead; its adopter has not asked yet
            return True
        time.sleep(0.05)
    return False


def test_output_exit_code_time_and_memory_are_known(tmp_path):
    own = b"x" * (500 << 20)  # of this process, and no part of the other's
    code = (
        "import sys, time; x = b'x' * (200 << 20); print('$HOME; true'); time.sleep(0.5); "
        "sys.exit(3)"
    )
    outcome = run(tmp_path, code)
    del own
    assert (outcome.exit_code, outcome.timed_out) == (3, False)
    assert (tmp_path / "log").read_text() == "$HOME; true\n"
    assert 200 < outcome.peak_host_mib < 400
    assert 0 < outcome.seconds < 60
    assert outcome.peak_device_mib is None


@pytest.mark.parametrize(("users", "seen"), [(None, "0"), ("1", "1")])
def test_no_side_of_a_comparison_rounds_to_tf32_unless_the_user_says_so(
    tmp_path, monkeypatch, users, seen
):
    if users is None:
        monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    else:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", users)
    assert run(tmp_path, "import os; print(os.environ['NVIDIA_TF32_OVERRIDE'])").exit_code == 0
    assert (tmp_path / "log").read_text() == f"{seen}\n"


def test_the_memory_of_a_process_in_a_session_of_its_own_counts(tmp_path):
    child = "import time; x = b'x' * (200 << 20); time.sleep(0.5)"
    code = (
        "import subprocess, sys; "
        f"subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    )
    assert 200 < run(tmp_path, code).peak_host_mib < 400


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize(("seconds", "timeout"), [(0, 60), (100, 0.7)])
def test_nothing_of_a_run_is_left_when_it_ends_or_takes_too_long(
    tmp_path, seconds, timeout, session
):
    code = PARENT.format(seconds=seconds, code=3, session=session)
    outcome = run(tmp_path, code, timeout)
    assert outcome.timed_out is (timeout < 1)
    assert outcome.exit_code == (-signal.SIGTERM if outcome.timed_out else 3)
    assert is_gone(int((tmp_path / "log").read_text()))


@pytest.mark.parametrize("session", [False, True])
def test_an_interrupt_ends_the_run_and_goes_on(tmp_path, session):
    def interrupt():
        if (tmp_path / "log").read_text().endswith("\n"):
            raise KeyboardInterrupt

    code = PARENT.format(seconds=100, code=0, session=session)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, code, watch=interrupt)
    assert is_gone(int((tmp_path / "log").read_text().split()[0]))


def test_a_run_does_not_outlive_one_who_is_killed(tmp_path):
    program = (
        "import sys; from pathlib import Path; from utils.comparison.runner import run_process; "
        f"run_process({['sleep', '100']!r}, Path({str(tmp_path / 'log')!r}), 60, 'cpu')"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as runner:
        started = []
        while not started or Path(f"/proc/{started[0]}/comm").read_text() != "sleep\n":
            assert runner.poll() is None
            time.sleep(0.02)
            started = descendants(runner.pid)
        runner.kill()
    assert is_gone(started[0])


def test_what_was_there_before_a_run_outlives_it(tmp_path):
    with subprocess.Popen(["sleep", "100"]) as other:
        assert run(tmp_path, "").exit_code == 0
        assert other.poll() is None
        other.kill()


def test_an_interrupt_right_after_the_start_ends_the_run_too(tmp_path, monkeypatch):
    started = []

    def interrupt(process):
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr("utils.comparison.runner.PeakMemory", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "import time; time.sleep(100)")
    try:
        assert not Path(f"/proc/{started[0]}").exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(started[0], signal.SIGKILL)


def test_a_program_that_is_absent_is_an_error_at_once(tmp_path):
    with pytest.raises(OSError, match="absent"):
        run_process(["/absent"], tmp_path / "log", 60, "cpu")


@pytest.mark.parametrize(
    ("devices", "asked", "lines", "mib"),
    [
        ("cuda:1", "-i 5 ", "100 1700 900", 1600),
        ("0,1", "-i 3,5 ", "100 2000 400 2500 300 2600 350", 300 + 600),
        ("0,1", "-i 3,5 ", "100", None),
    ],
)
def test_device_memory_is_the_rise_that_nvidia_smi_sees(
    tmp_path, monkeypatch, devices, asked, lines, mib
):
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


def test_epochs_of_another_trainer_are_the_times_between_its_rows(tmp_path):
    path = tmp_path / "results.csv"
    rows = ArrivingRows(path)
    rows()
    text = ""
    for line in ("epoch,loss\n", "0,1\n", "1,1\n", "2,1\n"):
        text += line
        path.write_text(text)
        rows()
        time.sleep(0.05)
    first, second = rows.epochs(warm_up=2)
    assert (first["epoch"], second["epoch"]) == (1, 2)
    assert (first["counted"], second["counted"]) == (False, True)
    assert 0.05 <= second["seconds"] < 60
    path.write_text(text + "3,1\n4,1\n")
    rows()
    assert [epoch["epoch"] for epoch in rows.epochs(0)] == [1, 2, 3]  # the last two came together


def test_processor_time_of_an_epoch_is_that_of_the_processes_that_were_started(tmp_path):
    path, spin = tmp_path / "results.csv", "import time\nwhile time.process_time() < 0.5: pass"
    rows, text = ArrivingRows(path), "epoch,loss\n"
    for work in (None, spin, None):
        if work:
            subprocess.run([sys.executable, "-c", work], check=True)
        else:  # what this process does itself is not the trainer's
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
        text += "0,1\n"
        path.write_text(text)
        rows()
    busy, idle = (epoch["processor_seconds"] for epoch in rows.epochs(0))
    assert busy > 0.4 and idle < 0.1


@pytest.mark.parametrize("anew", [False, True])
def test_rows_that_were_there_before_the_run_are_no_epochs(tmp_path, anew):
    path = tmp_path / "results.csv"
    path.write_text("epoch,loss\n0,1\n1,1\n")
    rows = ArrivingRows(path)
    rows()
    assert rows.arrivals == []
    text = "epoch,loss\n" if anew else path.read_text()
    path.write_text(text)
    rows()
    for epoch in range(3):
        text += f"{epoch},1\n"
        path.write_text(text)
        rows()
        assert len(rows.arrivals) == epoch + 1
        time.sleep(0.01)
    assert [epoch["epoch"] for epoch in rows.epochs(0)] == [1, 2]
