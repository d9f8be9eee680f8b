"""utils/files/run_folder.py: one process writes into a run's folder, for as long as it lives."""

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

from duet.utils.errors import UserError
from duet.utils.files.run_folder import LOCK_FILE, RunLock, create_run_folder
from duet.utils.project import PROJECT

# Holds the lock of a folder, and starts processes that outlive it.
HOLDER = """
import os, subprocess, sys, time
from pathlib import Path
from duet.utils.files.run_folder import RunLock

with RunLock() as lock:
    lock.take(Path(sys.argv[1]))
    started, starting = os.pipe()
    others = [os.fork()]
    if not others[0]:
        os.write(starting, b"1")
    else:
        os.read(started, 1)
        others.append(subprocess.Popen(["sleep", "60"]).pid)
        print(*others, flush=True)
    time.sleep(60)
"""


def test_lock_ends_with_its_killed_process(tmp_path):
    command = [sys.executable, "-c", HOLDER, tmp_path]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        others = [int(word) for word in process.stdout.readline().split()]
        before = (tmp_path / LOCK_FILE).read_bytes()
        with RunLock() as lock:
            with pytest.raises(UserError) as error:
                lock.take(tmp_path)
            assert re.match(
                rf"{tmp_path} is in use by process {process.pid} on {socket.gethostname()} "
                r"since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d; .*--name",
                str(error.value),
            )
            assert (tmp_path / LOCK_FILE).read_bytes() == before
            (tmp_path / LOCK_FILE).write_bytes(b"\x1b[2Jprocess 7 on a since b\n")
            with pytest.raises(UserError, match="is in use by another process;"):
                lock.take(tmp_path)
            process.kill()
            process.wait()
            lock.take(tmp_path)  # though processes that the holder started live on
        for other in others:
            os.kill(other, signal.SIGKILL)


def test_lock_is_reentrant_and_released_after_its_block(tmp_path):
    for _ in range(2):
        with RunLock() as lock:
            lock.take(tmp_path)
            lock.take(tmp_path)
            with RunLock() as second, pytest.raises(UserError, match="is in use by process"):
                second.take(tmp_path)


def test_file_system_without_locks_is_one_warning(tmp_path, monkeypatch, caplog):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunLock() as lock:
        lock.take(tmp_path)
    (record,) = caplog.records
    assert (
        f"{tmp_path}: this file system does not support locks (No locks available)"
        in record.message
    )


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path.with_name("elsewhere"))]
)
def test_special_file_is_no_lock(tmp_path, make):
    make(tmp_path / LOCK_FILE)
    with RunLock() as lock, pytest.raises(UserError, match=f"{LOCK_FILE}: .*remove it"):
        lock.take(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


STARTER = """
import sys, time
from pathlib import Path
from duet.utils.errors import UserError
from duet.utils.files.run_folder import RunLock, create_run_folder

moment, project, exist_ok = float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True"
time.sleep(max(0, moment - time.time()))
with RunLock() as lock:
    try:
        folder = create_run_folder(project, "exp", exist_ok)
        lock.take(folder)
        print(folder.name, flush=True)
        sys.stdin.read()
    except UserError as error:
        print("refused" if "is in use by" in str(error) else error)
"""


@pytest.mark.parametrize("exist_ok", [False, True])
def test_simultaneous_starts_get_distinct_folders(tmp_path, exist_ok):
    arguments = [sys.executable, "-c", STARTER, time.time() + 0.5, tmp_path, exist_ok]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen([*map(str, arguments)], cwd=PROJECT, **pipes))
            for _ in range(3)
        ]
        answers = sorted(process.stdout.readline().decode().strip() for process in started)
        for process in started:
            process.stdin.close()
    assert answers == (["exp", "refused", "refused"] if exist_ok else ["exp", "exp2", "exp3"])


def test_unusable_run_folder_error_names_flags_and_place(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as caught:
        create_run_folder(tmp_path / "file" / "runs", "exp", exist_ok=False)
    assert re.match(
        rf"--project \S+ --name exp: could not create a folder in {tmp_path}/\S+: Not a directory",
        str(caught.value),
    )
