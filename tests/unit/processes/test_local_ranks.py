"""Ranks that one command starts itself: signals, exit codes, what they see, and what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duet import backend
from duet.utils.processes.launch import job_code, run_ranks

SECONDS = 60  # a limit against hanging

# Each rank needs a while to import what it needs.
RANK = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1] + os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(1)
from duet.utils.processes.command import run_command
"""
WAITING = RANK + "run_command(lambda: time.sleep(60), several=True)"
LISTENING = (
    RANK
    + """
from duet.utils.processes.suspend import Suspended, listening
def main():
    with listening("", None) as stop:
        while not (cause := stop.cause()):
            time.sleep(0.01)
        raise Suspended(cause)
run_command(main, several=True)
"""
)
COMMAND = """
import os, signal, sys
from duet.utils.processes.command import run_command
from duet.utils.processes.launch import run_ranks
from duet.utils.processes.suspend import listening
def main():
    with listening("", None) as stop:
        for number in sys.argv[3:]:
            os.kill(os.getpid(), int(number))
        ranks = [sys.executable, "-c", *sys.argv[1:3]]
        sys.exit(run_ranks(ranks, os.environ["YOLO_BACKEND"], {"WORLD_SIZE": "2"}, stop))
signal.signal(signal.SIGINT, signal.default_int_handler)  # else as pytest was started
run_command(main)
"""


class Command:
    """A command with two ranks that have started.

    Args:
        folder: for the numbers of their processes.
        rank: a program.
        numbers: of the signals that the command gets just before it starts them.
    """

    def __init__(self, folder: Path, rank: str, *numbers: int) -> None:
        files = folder / "rank"
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, rank, files, *(str(int(number)) for number in numbers)],
            env={**os.environ, "YOLO_BACKEND": backend.use(), "PYTHONPATH": "."},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + SECONDS
        paths = [Path(f"{files}{place}") for place in range(2)]
        while not all(path.exists() and path.read_text() for path in paths):
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        self.ranks = [int(path.read_text()) for path in paths]

    def end(self) -> tuple[int, str, str]:
        """Return exit code, output and errors."""
        output, errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, output, errors


def test_signals_are_one_request_to_the_ranks_however_many_come(tmp_path):
    command = Command(tmp_path, LISTENING)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
        command.process.send_signal(number)
    assert command.end() in ((75, "SIGTERM\n", ""), (75, "SIGUSR1\n", ""))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_before_the_ranks_start_is_passed_on_to_them(tmp_path, number):
    assert Command(tmp_path, LISTENING, number).end() == (75, f"{number.name}\n", "")


def test_control_c_before_the_ranks_listen_for_it_is_answered(tmp_path):
    command = Command(tmp_path, LISTENING)
    command.process.send_signal(signal.SIGINT)
    assert command.end() == (130, "", "interrupted\n")


def test_a_signal_to_ranks_that_import_is_kept_until_they_listen(tmp_path):
    command = Command(tmp_path, LISTENING)
    for rank in command.ranks:
        os.kill(rank, signal.SIGTERM)
    assert command.end() == (75, "SIGTERM\n", "")


def test_a_killed_command_takes_its_ranks_along(tmp_path):
    command = Command(tmp_path, WAITING)
    command.process.kill()
    command.end()  # returns when nobody can write to it any more


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([75, 75], 75),
        ([-9, 1], 1),
        ([2, 1], 2),
        ([1, 130], 130),
        ([None, 0], 1),
        ([75, -9], 75),
    ],
)
def test_the_code_of_a_job_is_that_of_the_rank_that_says_why(codes, code):
    assert job_code(codes) == code


def run(program: str, *arguments: object, number: int = 2) -> int:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return run_ranks(command, backend.use(), {"WORLD_SIZE": str(number)})


ENVIRONMENT = """
import json, os, sys
from pathlib import Path
folder = Path(os.environ["DUET_MEETING_FOLDER"])
found = dict(os.environ, mode=oct(folder.stat().st_mode), session=os.getsid(0) == os.getpid())
Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps(found))
"""


def test_ranks_know_their_places_and_meet_in_a_private_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DUET_STATUS_FILE", "unused")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")  # of jobs on several machines
    assert run(ENVIRONMENT, tmp_path, number=3) == 0
    found = [json.loads((tmp_path / str(place)).read_text()) for place in range(3)]
    for place, rank in enumerate(found):
        assert rank["RANK"] == rank["LOCAL_RANK"] == str(place)
        assert rank["WORLD_SIZE"] == rank["LOCAL_WORLD_SIZE"] == "3"
        assert rank["mode"] == "0o40700" and rank["session"]
        assert "DUET_STATUS_FILE" not in rank
        if backend.use() == "torch":
            assert rank["GLOO_SOCKET_IFNAME"] == rank["NCCL_SOCKET_IFNAME"] == "lo"
    assert not Path(found[0]["DUET_MEETING_FOLDER"]).exists()


FAILING = """
import os, sys, time
if os.environ["RANK"] == "1":
    {}
time.sleep(100)
"""


@pytest.mark.parametrize(
    ("end", "code", "line"),
    [
        ("sys.exit(3)", 3, "\nerror: rank 1 ended with exit code 3; ending the job\n"),
        ("sys.exit(2)", 2, ""),  # a mistake of the user's, which the rank has reported
        ("os.kill(os.getpid(), 9)", 1, "\nerror: rank 1 was killed by SIGKILL; ending the job\n"),
    ],
)
def test_the_others_end_soon_after_one_has_failed_which_is_named(capfd, end, code, line):
    before = time.monotonic()
    assert run(FAILING.format(end)) == code
    assert time.monotonic() - before < 15
    assert capfd.readouterr().err == line


SAVING = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, lambda *_: Path(sys.argv[1] + "-saves" + os.environ["RANK"]).touch())
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
Path(sys.argv[1] + os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(60)
"""


def test_a_second_control_c_ends_ranks_that_save_their_state(tmp_path):
    command = Command(tmp_path, SAVING)
    command.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + SECONDS
    while not all((tmp_path / f"rank-saves{place}").exists() for place in range(2)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(subprocess.TimeoutExpired):
        command.process.communicate(timeout=1)  # it waits for them
    command.process.send_signal(signal.SIGINT)
    assert command.end() == (130, "", "interrupted\n")
    for rank in command.ranks:
        with pytest.raises(ProcessLookupError):
            os.kill(rank, 0)
