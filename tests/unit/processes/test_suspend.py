"""utils/processes/suspend.py: what asks a run to stop, and that nothing else does."""

import os
import signal
import subprocess
import sys

import pytest

from duet.utils.processes import suspend
from duet.utils.processes.command import run_command
from duet.utils.processes.suspend import FILE_VARIABLE, StopRequests, Suspended, listening
from duet.utils.project import PROJECT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_asks_until_the_end_and_handlers_come_back(number):
    before = signal.getsignal(number)
    with listening("", None) as stop:
        assert stop.cause() is None
        os.kill(os.getpid(), number)
        assert stop.cause() == number.name
        assert stop.cause() == number.name
    assert signal.getsignal(number) is before


def test_a_suspended_command_reports_why_and_late_requests_do_not_change_its_code(capsys):
    def main():
        with listening("", None):
            raise Suspended("suspended: the reason")

    with pytest.raises(SystemExit) as end:
        run_command(main)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        os.kill(os.getpid(), number)
    assert (end.value.code, capsys.readouterr().out) == (75, "suspended: the reason\n")


def test_control_c_asks_for_a_stop_where_the_state_can_be_saved_and_raises_elsewhere(capfd):
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
def test_a_second_control_c_ends_at_once(where, printed):
    done = subprocess.run(
        [sys.executable, "-c", TWICE, where], cwd=PROJECT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (130, printed)
    assert "Traceback" not in done.stderr


def test_control_c_that_is_ignored_stays_so():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell script
    with listening("", None) as stop, stop.saving_at_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.cause() is None


def test_signals_are_taken_back_from_what_took_them():
    with listening("", None) as stop:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stop.take_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.cause() == "SIGTERM"


def test_a_file_asks_while_it_is_there_and_that_of_the_launcher_says_why(tmp_path, monkeypatch):
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


def test_a_file_out_of_reach_does_not_ask(tmp_path):
    name = "x" * 300  # the system refuses to look for it
    assert StopRequests(tmp_path / name, message=tmp_path / name).cause() is None


def test_the_time_limit_counts_minutes_from_the_start(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(suspend.time, "monotonic", lambda: now[0])
    stop = StopRequests(minutes=1.5)
    now[0] += 89
    assert stop.cause() is None
    now[0] += 1
    assert stop.cause() == "--time-limit 1.5 min"


def test_a_rank_stops_when_any_rank_is_asked_and_goes_on_when_they_have_not_agreed(tmp_path):
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
