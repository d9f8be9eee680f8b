"""utils/processes/suspend.py: what asks a run to stop, and that nothing else does."""

import os
import signal

import pytest

from utils.processes import suspend
from utils.processes.command import run_command
from utils.processes.suspend import FILE_VARIABLE, StopRequests, Suspended, listening


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_asks_until_the_end_and_handlers_come_back(number):
    before = signal.getsignal(number)
    with listening("", None) as stop:
        assert stop.cause() is None
        os.kill(os.getpid(), number)
        assert stop.cause() == number.name
        assert stop.cause() == number.name
    assert signal.getsignal(number) is before


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
        assert stop.cause() == f"{ours} is there; remove it before going on"
        ours.unlink()
        assert stop.cause() is None
        launchers.touch()
        assert stop.cause() == f"{launchers} is there"
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
        return True

    assert StopRequests(agree=another_rank).cause() == "asked for by another rank"
    (tmp_path / "file").touch()
    not_yet = StopRequests(tmp_path / "file", agree=lambda own: asked.append(own))
    assert not_yet.cause() is None
    assert asked == [False, True]


def test_a_suspended_command_ends_with_code_75_and_says_why(capsys):
    def main():
        raise Suspended("suspended: the reason")

    with pytest.raises(SystemExit) as end:
        run_command(main)
    assert end.value.code == 75
    assert capsys.readouterr().out == "suspended: the reason\n"


def test_a_file_that_another_rank_saw_first_is_named(tmp_path):
    file = tmp_path / "file"

    def another_rank(own):
        file.touch()
        return True

    assert "file is there" in StopRequests(file, agree=another_rank).cause()
