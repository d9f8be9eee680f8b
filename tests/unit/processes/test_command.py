"""How a command ends: which errors are one message, and with which exit code."""

import pytest

from utils.errors import LoaderError, UserError
from utils.processes.command import run_command
from utils.processes.exit_status import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USER_ERROR

BUG = "a.jpg: ValueError: 3\nin a loader worker:\nTraceback (most recent call last):\n  there"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("--img 3: a multiple of 32 is needed"), EXIT_USER_ERROR, "error: --img 3"),
        (OSError(28, "No space left on device"), EXIT_USER_ERROR, "error: [Errno 28] No space"),
        (LoaderError("loader worker 0 died: SIGKILL"), EXIT_FAILED, "error: loader worker"),
        (
            LoaderError(BUG),
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
def test_what_is_no_defect_of_the_command_ends_it_with_a_message(error, code, message, capsys):
    def main():
        raise error

    with pytest.raises(SystemExit) as end:
        run_command(main)
    assert end.value.code == code != 0
    assert capsys.readouterr().err.startswith(message)


def test_a_defect_keeps_its_traceback():
    def main():
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        run_command(main)
