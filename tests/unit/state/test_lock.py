"""utils/state/lock.py: one process writes into a run's folder, for as long as it lives."""

import contextlib
import errno
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from utils.errors import UserError
from utils.files.project import PROJECT
from utils.state.lock import LOCK_FILE, RunLock

# Holds the lock of a folder, and starts processes that outlive it.
HOLDER = """
import os, subprocess, sys, time
from pathlib import Path
from utils.state.lock import RunLock

with RunLock() as lock:
    lock.take(Path(sys.argv[1]))
    started, starting = os.pipe()
    others = [os.fork()]
    if not others[0]:
        os.write(starting, b"1")
    else:
        os.read(started, 1)
        others.append(subprocess.Popen(["sleep", "60"]).pid)
        others.append(subprocess.Popen(["sleep", "60"], preexec_fn=os.getpid).pid)
        print(*others, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path, and the processes that it started."""
    command = [sys.executable, "-c", HOLDER, tmp_path]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        others = [int(word) for word in process.stdout.readline().split()]
        yield process, others
        process.kill()
        for other in others:
            os.kill(other, signal.SIGKILL)


def test_a_second_process_is_told_who_writes_where_and_since_when(tmp_path, holder):
    before = (tmp_path / LOCK_FILE).read_bytes()
    with RunLock() as lock:
        for _ in range(2):
            with pytest.raises(UserError) as error:
                lock.take(tmp_path)
    text = str(error.value)
    assert re.match(
        rf"{tmp_path} is being written by process {holder[0].pid} on {socket.gethostname()} "
        r"since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d; ",
        text,
    )
    assert "--name" in text
    assert (tmp_path / LOCK_FILE).read_bytes() == before


def test_a_killed_process_leaves_no_lock_though_processes_that_it_started_live(tmp_path, holder):
    process, others = holder
    process.kill()
    process.wait()
    for other in others:
        os.kill(other, 0)
    with RunLock() as lock:
        lock.take(tmp_path)


def test_the_end_of_a_process_that_the_holder_started_does_not_free_the_run(tmp_path, holder):
    for other in holder[1]:
        os.kill(other, signal.SIGKILL)
    with RunLock() as lock, pytest.raises(UserError, match="is being written"):
        lock.take(tmp_path)


def test_a_lock_is_free_after_its_block_and_may_be_taken_twice_by_its_holder(tmp_path):
    for _ in range(2):
        with RunLock() as lock:
            lock.take(tmp_path)
            lock.take(tmp_path)
            with RunLock() as second, pytest.raises(UserError, match="is being written"):
                second.take(tmp_path)
    assert re.fullmatch(
        rf"process {os.getpid()} on \S+ since \S+\n", (tmp_path / LOCK_FILE).read_text()
    )


@pytest.mark.parametrize("content", [b"", b"\x1b[2Jprocess 7 on a since b\n", b"\xff" * 100_000])
def test_a_holder_that_left_no_readable_name_is_another_process(tmp_path, holder, content):
    (tmp_path / LOCK_FILE).write_bytes(content)
    with RunLock() as lock, pytest.raises(UserError, match="is being written by another process;"):
        lock.take(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_told_in_one_line(tmp_path, monkeypatch, caplog, number):
    def refuse(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunLock() as lock:
        lock.take(tmp_path)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "\n" not in record.message
    assert f"{tmp_path}: no lock can be had here ({os.strerror(number)})" in record.message


def test_a_lock_that_cannot_be_signed_names_its_file_and_is_free(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    with (
        RunLock() as lock,
        pytest.raises(UserError, match=f"{LOCK_FILE}: it cannot be written .No space left"),
    ):
        lock.take(tmp_path)
    monkeypatch.undo()
    with RunLock() as lock:
        lock.take(tmp_path)


def make_link(path):
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, make_link])
def test_what_is_no_regular_file_is_no_lock(tmp_path, make):
    make(tmp_path / LOCK_FILE)
    with RunLock() as lock, pytest.raises(UserError, match=f"{LOCK_FILE}: .*remove it"):
        lock.take(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


STARTER = """
import sys, time
from pathlib import Path
from utils.errors import UserError
from utils.state.folder import create_run_folder
from utils.state.lock import RunLock

moment, project, exist_ok = float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True"
time.sleep(max(0, moment - time.time()))
with RunLock() as lock:
    try:
        folder = create_run_folder(project, "exp", exist_ok)
        lock.take(folder)
        print(folder.name, flush=True)
        sys.stdin.read()
    except UserError as error:
        print("refused" if "is being written by" in str(error) else error)
"""


@pytest.mark.parametrize("exist_ok", [False, True])
def test_of_processes_that_start_at_one_moment_each_folder_has_one(tmp_path, exist_ok):
    arguments = [sys.executable, "-c", STARTER, time.time() + 1, tmp_path, exist_ok]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen([*map(str, arguments)], cwd=PROJECT, **pipes))
            for _ in range(6)
        ]
        answers = sorted(process.stdout.readline().decode().strip() for process in started)
        for process in started:
            process.stdin.close()
    if exist_ok:
        assert answers == ["exp", *["refused"] * 5]
    else:
        assert answers == ["exp", *(f"exp{number}" for number in range(2, 7))]
