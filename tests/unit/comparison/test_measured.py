"""What a run printed, read: why it failed, and what it says of its options."""

from utils.comparison.measured import describe_run, notes
from utils.comparison.plan import Cell, Turn
from utils.comparison.runner import Outcome


def failed(tmp_path, side, text):
    log = tmp_path / "log"
    log.write_text(text)
    outcome = Outcome(2, False, 1, 1, 1, None)
    return describe_run(Turn(Cell(side, "plain", 4), 1), [], outcome, log, [])


def test_the_reason_of_a_failure_is_the_last_error(tmp_path):
    text = "starting\nerror: the first\nrank 1: error: no such file\nthe end\n"
    run = failed(tmp_path, "torch", text)
    assert run["failure"] == "exit code 2: rank 1: error: no such file"
    assert run["log_tail"] == text.splitlines()


def test_the_reason_of_a_failure_without_an_error_is_the_last_line(tmp_path):
    text = "Traceback (most recent call last):\nValueError: 3\n  \n\n"
    assert failed(tmp_path, "torch", text)["failure"] == "exit code 2: ValueError: 3"
    assert failed(tmp_path, "torch", "")["failure"] == "exit code 2"


def test_a_run_that_was_ended_is_not_advised_to_go_on(tmp_path):
    log = tmp_path / "log"
    log.write_text("suspended after 3 batches: SIGTERM; go on with --resume exp\n")
    outcome = Outcome(75, True, 61.0, 1, 1, None)
    run = describe_run(Turn(Cell("torch", "plain", 4), 1), [], outcome, log, [])
    assert run["failure"] == "ended after 61 s, the limit of --timeout"


def test_what_surrounds_the_reason_stays(tmp_path):
    run = failed(tmp_path, "torch", "error: stands still; where it is:\n  File a\n")
    assert run["failure"] == "exit code 2: error: stands still; where it is:"
    assert run["log_tail"][-1] == "  File a"


def test_the_log_of_another_trainer_is_shown_as_it_is(tmp_path):
    text = "".join(f"{number}\n" for number in range(20)) + "Killing subprocess 1\n"
    run = failed(tmp_path, "mine", text)
    assert run["failure"] == "exit code 2: Killing subprocess 1"
    assert (len(run["log_tail"]), run["log_tail"][0]) == (15, "6")


def test_of_a_progress_bar_only_what_it_showed_last_is_told(tmp_path):
    text = "starting\r\n 0/9\r 5/9\r 9/9 done\nValueError: 3\n"
    assert failed(tmp_path, "mine", text)["log_tail"] == ["starting", " 9/9 done", "ValueError: 3"]


def test_what_all_processes_say_of_an_option_is_noted_once(tmp_path):
    log = tmp_path / "log"
    log.write_text("rank 1: --amp fp16: slow\nstarting\n--amp fp16: slow\n")
    assert notes("fp16", log) == ["--amp fp16: slow"]
    assert notes("plain", log) == []
