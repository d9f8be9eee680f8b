"""How a command ends: messages and exit codes, and what asks a run to stop and save its state."""

import fcntl
import os
import signal
import subprocess
import sys
import termios

import pytest

from duet.utils.errors import UserError, WorkerError
from duet.utils.processes import suspend
from duet.utils.processes.command import run_command
from duet.utils.processes.exit_status import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_SUSPENDED,
    STATUS_FILE,
)
from duet.utils.processes.start import EXIT_USER_ERROR
from duet.utils.processes.suspend import FILE_VARIABLE, StopRequests, Suspended, listening
from duet.utils.project import PROJECT
from tests.environments import python

BUG = "a.jpg: ValueError: 3\nin a loader worker:\nTraceback (most recent call last):\n  there"
LINE = "from duet.utils.text import say\ndef main():\n    for _ in range(9999): say('line')"
LAST_WORDS = (
    "from duet.utils.errors import UserError\n"
    "from duet.utils.processes.suspend import Suspended\n"
    "def main():\n    print('shorter than the buffer')\n    {}"
)
OTHER_PIPE = "def main():\n    raise BrokenPipeError(32, 'Broken pipe', 'camera')"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("--img 3: a multiple of 32 is needed"), EXIT_USER_ERROR, "error: --img 3"),
        (
            OSError(28, "No space left on device"),
            EXIT_USER_ERROR,
            "error: No space left on device\n",
        ),
        (OSError(17, "File exists", "a/b"), EXIT_USER_ERROR, "error: a/b: File exists\n"),
        (WorkerError("loader worker 0 died: SIGKILL"), EXIT_FAILED, "error: loader worker"),
        (
            WorkerError(BUG),
            EXIT_FAILED,
            "error: " + BUG.replace("\n", "\n  ").replace("    ", "  "),
        ),
        (
            UserError("a\x1b[2J\r\nerror: b\udce9"),
            EXIT_USER_ERROR,
            "error: a\\x1b[2J\\r\n  error: b\\xe9\n",
        ),
        (KeyboardInterrupt(), EXIT_INTERRUPTED, "interrupted\n"),
    ],
)
def test_expected_error_ends_a_command_with_a_message(error, code, message, capsys):
    def main():
        raise error

    with pytest.raises(SystemExit) as end:
        run_command(main)
    assert end.value.code == code != 0
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(
    "make",
    [os.mkdir, lambda path: path.parent.rmdir()],
)
def test_unusable_status_file_ends_the_command_first(tmp_path, monkeypatch, capfd, make):
    path = tmp_path / "below" / "status"
    path.parent.mkdir()
    make(path)
    monkeypatch.setenv(STATUS_FILE, str(path))
    with pytest.raises(SystemExit) as end:
        run_command(pytest.fail)
    assert end.value.code == EXIT_USER_ERROR
    text = capfd.readouterr().err
    assert text.startswith(f"error: {STATUS_FILE}={path}: not writable; use the path of a file")
    assert len(text.splitlines()) == 1


def test_defect_keeps_its_traceback():
    def main():
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        run_command(main)


def ended_unread(program, folder, errors=subprocess.PIPE, several=False, **variables):
    """Run a command's main whose standard output nobody reads, as `| head` leaves it.

    Args:
        errors: where standard error goes; subprocess.STDOUT for both unread, as in `2>&1 | head`.
    """
    reader, writer = os.pipe()
    os.close(reader)
    begin = "from duet.utils.processes.command import run_command"
    run = f"{begin}\n{program}\nrun_command(main, {several})"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "", **variables}
    try:
        return subprocess.run(
            [sys.executable, "-c", run],
            cwd=folder, env=environment, stdout=writer, stderr=errors, text=True,
        )  # fmt: skip
    finally:
        os.close(writer)


def test_unread_output_ends_a_command_quietly(tmp_path):
    done = ended_unread(LINE, tmp_path)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_full_disk_under_the_log_is_reported_once(tmp_path):
    """As in `train.py > log.txt`: it was a traceback for each line."""
    log = "import logging\nfrom pathlib import Path\nfrom duet.utils.processes.command import "
    log += "run_command\ndef main():\n    for _ in range(9): logging.warning('a line')\n"
    log += "    Path('work').touch()\nrun_command(main)"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", log], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(PROJECT)}, text=True,
        )  # fmt: skip
    assert (tmp_path / "work").exists()
    reason = "No space left on device"
    assert done.stderr == f"the log cannot be written: {reason}; going on without it\n"


@pytest.mark.parametrize("errors", [subprocess.PIPE, subprocess.STDOUT])
@pytest.mark.parametrize(
    ("end", "code", "reported"),
    [
        ("return", 0, ""),
        ("raise UserError('no')", EXIT_USER_ERROR, "error: no\n"),
        ("raise Suspended('later')", EXIT_SUSPENDED, ""),
        ("raise Suspended('later', by_hand=True)", EXIT_INTERRUPTED, ""),
    ],
)
def test_exit_code_survives_an_unread_message(tmp_path, end, code, reported, errors):
    done = ended_unread(LAST_WORDS.format(end), tmp_path, errors)
    assert done.returncode == code
    assert done.stderr == (reported if errors == subprocess.PIPE else None)


def test_suspended_rank_keeps_its_code_without_readers(tmp_path):
    status = tmp_path / "status"
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", STATUS_FILE: str(status)}
    program = LAST_WORDS.format("raise Suspended('later')")
    done = ended_unread(program, tmp_path, several=True, **variables)
    assert (done.returncode, done.stderr) == (0, "")  # a launcher gets 0 beside the file
    assert status.read_text() == str(EXIT_SUSPENDED)


@pytest.mark.parametrize("closed", [(1,), (1, 2)])  # as by `>&-`, `2>&-`
@pytest.mark.parametrize("several", [False, True])
def test_command_with_closed_output_ends_normally(tmp_path, closed, several):
    program = "def main(): print('help')"
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"} if several else {}

    def close():
        for descriptor in closed:
            os.close(descriptor)

    begin = "from duet.utils.processes.command import run_command"
    done = subprocess.run(
        [sys.executable, "-c", f"{begin}\n{program}\nrun_command(main, {several})"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT), **ranks},
        capture_output=True, text=True, preexec_fn=close,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if 1 in closed else "help\n")


def test_another_broken_pipe_is_reported(tmp_path):
    program = f"import os\nos.dup2(os.open(os.devnull, os.O_WRONLY), 1)\n{OTHER_PIPE}"
    done = ended_unread(program, tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: camera: Broken pipe\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_stop_signal_persists_and_handlers_are_restored(number):
    before = signal.getsignal(number)
    with listening("", None) as stop:
        assert stop.cause() is None
        os.kill(os.getpid(), number)
        assert stop.cause() == number.name
        assert stop.cause() == number.name
    assert signal.getsignal(number) is before


def test_a_closing_terminal_asks_for_nothing_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with listening("", None) as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.cause() is None
    finally:
        signal.signal(signal.SIGHUP, before)


UNTIL_THE_TERMINAL_CLOSES = """
import os, sys, time
from duet.utils.processes.command import run_command
from duet.utils.processes.suspend import Suspended, listening

def main():
    with listening("", None) as stop:
        print("ready")
        while (cause := stop.cause()) is None:
            time.sleep(0.01)
        raise Suspended(f"suspended: {cause}")

run_command(main)
"""


def test_a_run_whose_terminal_closes_is_suspended():
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", UNTIL_THE_TERMINAL_CLOSES], cwd=PROJECT, stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY),
    )  # fmt: skip
    os.close(theirs)
    while os.read(ours, 1) != b"\n":
        pass
    os.close(ours)
    assert process.wait(60) == 75


def test_suspended_command_reports_why_despite_late_signals(capsys):
    def main():
        with listening("", None):
            raise Suspended("suspended: the reason")

    with pytest.raises(SystemExit) as end:
        run_command(main)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        os.kill(os.getpid(), number)
    assert (end.value.code, capsys.readouterr().out) == (75, "suspended: the reason\n")


def test_control_c_saves_in_training_and_raises_elsewhere(capfd):
    with listening("", None) as stop:
        assert stop.cause() is None and not stop.interrupted
        with stop.saving_at_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)  # as torchrun sends it a moment later
            assert (stop.cause(), stop.interrupted) == ("Ctrl-C", True)
    with listening("", None) as stop:
        with stop.saving_at_interrupt():
            pass
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.cause() == "Ctrl-C"  # if Python ignored it, as in __del__
    assert capfd.readouterr().err.split("\n") == [
        "", "Ctrl-C: saving the state after this batch; press again to quit now", "",
    ]  # fmt: skip


TWICE = """
import contextlib, os, signal, sys
from duet.utils.processes.command import run_command
from duet.utils.processes.suspend import listening

def main():
    with listening("", None) as stop:
        saving = stop.saving_at_interrupt() if sys.argv[1] == "saves" else contextlib.nullcontext()
        try:
            with saving:
                os.kill(os.getpid(), signal.SIGINT)
                print("held", flush=True)
        finally:
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            print("not at once", flush=True)

run_command(main)
"""


@pytest.mark.parametrize(("where", "printed"), [("saves", "held\n"), ("raises", "")])
def test_second_control_c_ends_at_once(where, printed):
    done = python("-c", TWICE, where)
    assert (done.returncode, done.stdout) == (130, printed)
    assert "Traceback" not in done.stderr


def test_ignored_control_c_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell script
    with listening("", None) as stop, stop.saving_at_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.cause() is None


def test_signal_handlers_are_reclaimed_from_libraries():
    with listening("", None) as stop:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stop.take_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.cause() == "SIGTERM"


def test_stop_file_requests_a_stop_while_it_exists(tmp_path, monkeypatch):
    ours, launchers = tmp_path / "ours", tmp_path / "launcher's"
    monkeypatch.setenv(FILE_VARIABLE, str(launchers))
    with listening(str(ours), None) as stop:
        assert stop.cause() is None
        ours.touch()
        assert stop.cause() == f"{ours} exists; remove it before resuming"
        ours.unlink()
        assert stop.cause() is None
        launchers.touch()
        assert stop.cause() == f"{launchers} exists"
        launchers.write_text("SIGTERM")
        assert stop.cause() == "SIGTERM"


def test_unreachable_stop_file_requests_nothing(tmp_path):
    name = "x" * 300  # the system refuses to look for it
    assert StopRequests(tmp_path / name, message=tmp_path / name).cause() is None


def test_time_limit_counts_minutes_from_the_start(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(suspend.time, "monotonic", lambda: now[0])
    stop = StopRequests(minutes=1.5)
    now[0] += 89
    assert stop.cause() is None
    now[0] += 1
    assert stop.cause() == "--time-limit 1.5 min"


def test_rank_stops_on_request_of_any_rank_once_agreed(tmp_path):
    asked = []

    def another_rank(own):
        asked.append(own)
        return len(asked) == 1  # it was no Ctrl-C

    assert StopRequests(agree=another_rank).cause() == "requested by another rank"
    assert StopRequests(agree=lambda own: True).cause() == "Ctrl-C"  # of another rank
    (tmp_path / "file").touch()
    not_yet = StopRequests(tmp_path / "file", agree=lambda own: asked.append(own))
    assert not_yet.cause() is None
    assert asked == [False, False, True]  # after an agreement, whether it was Ctrl-C
    assert not_yet.is_asked() and not_yet.cause(agreed=False) is None
    assert not_yet.cause(agreed=True) == f"{tmp_path / 'file'} exists; remove it before resuming"
    assert asked == [False, False, True, False]
