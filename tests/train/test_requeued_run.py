"""One command line with --resume auto, started again and again as a cluster does it."""

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

import train
from duet.utils.processes.command import run_command
from tests.environments import wait_until
from tests.train.short_runs import assert_equal_runs, short_flags

EPOCHS = 12  # enough for three signals to arrive in between


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """A function from further flags to the command line of the run."""
    common = short_flags(tmp_path_factory.mktemp("inputs"), "--epochs", EPOCHS)
    return lambda *more: ["train.py", *common, *map(str, more)]


@pytest.fixture
def run_here(monkeypatch, capfd, caplog):
    """A function from a command line to the exit code, printed and error text of its run."""

    def run(command):
        monkeypatch.setattr("sys.argv", command)
        code = 0
        caplog.clear()
        with caplog.at_level("INFO"):
            try:
                run_command(train.main, several=True)
            except SystemExit as end:
                code = end.code
        printed, errors = capfd.readouterr()
        return code, caplog.text + printed, errors

    return run


def start(command):
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def finish(process):
    printed, errors = process.communicate(timeout=200)
    assert "Traceback" not in errors
    return process.returncode, printed, errors


def states(folder):
    return sorted((folder / "weights").glob("state-*"))


def wait_for_new_state(process, folder):
    before = states(folder)
    wait_until(lambda: states(folder) != before, process)


def assert_refused_untouched(run_here, command, process, folder):
    """A second start is told of the first, and changes nothing of the run, here stopped."""
    os.kill(process.pid, signal.SIGSTOP)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code, _, errors = run_here(command)
    assert code == 2
    assert f"error: {folder} is in use by process {process.pid} on " in errors
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    os.kill(process.pid, signal.SIGCONT)


@contextmanager
def no_large_files():
    """As on a full disk: pictures of up to 72 kB fit, a state of 97 kB or more does not."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (85_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_requeued_run_ends_like_an_uninterrupted_one(flags, run_here, tmp_path):
    whole = tmp_path / "whole"
    code, _, errors = run_here(flags("--project", tmp_path, "--name", "whole", "--workers", 1))
    assert code == 0, errors
    folder, file = tmp_path / "job", tmp_path / "suspend"
    job = ["--project", tmp_path, "--name", "job", "--resume", "auto", "--suspend-file", file]
    file.touch()
    code, printed, errors = run_here(flags(*job, "--workers", 0))
    assert (code, errors) == (75, "")
    assert "starting a new run" in printed
    assert f"suspended after 1 batch: {file} exists" in printed
    file.unlink()
    for number, workers in ((signal.SIGTERM, 1), (signal.SIGKILL, 1), (signal.SIGUSR1, 2)):
        process = start(flags(*job, "--workers", workers, "--save-steps", 2))
        wait_for_new_state(process, folder)
        assert_refused_untouched(run_here, flags(*job), process, folder)
        os.killpg(process.pid, number)  # the workers too, as a cluster does
        while number != signal.SIGKILL and process.poll() is None:  # again, to the very end
            process.send_signal(number)
            time.sleep(0.001)
        code, printed, errors = finish(process)
        assert code == (-9 if number == signal.SIGKILL else 75), errors
        if code == 75:
            assert errors == ""
            assert f"batches: {number.name}; continue with --resume {folder}" in printed
    before = {path: path.read_bytes() for path in states(folder)}
    with no_large_files():
        code, printed, errors = run_here(flags(*job, "--workers", 0, "--save-steps", 1))
    assert code == 2
    assert ".safetensors: the state after" in errors and "File too large" in errors
    assert {path: path.read_bytes() for path in states(folder)} == before
    code, _, errors = run_here(flags(*job, "--workers", 0))
    assert (code, errors) == (0, "")
    assert_equal_runs(folder, whole)
    code, printed, _ = run_here(flags(*job))
    assert code == 0 and printed.strip().endswith(f"{folder} is already finished")
