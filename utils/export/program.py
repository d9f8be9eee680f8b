"""Converters that are programs: started without a shell, in a folder, for a limited time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from utils.errors import UserError, brief

LONGEST_SECONDS = 900


def run_program(command: Sequence[str | Path], folder: Path) -> None:
    """Run a program in a folder; UserError has the last line it wrote if it fails."""
    name = Path(command[0]).name
    try:
        with subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # with what it starts it is one group
        ) as process:
            try:
                output, errors = process.communicate(timeout=LONGEST_SECONDS)
            except BaseException:  # a timeout, Ctrl-C or SIGTERM
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{name} has not ended after {LONGEST_SECONDS} s") from error
    except OSError as error:
        raise UserError(f"{command[0]} cannot be started: {error.strerror}") from error
    if process.returncode:
        *_, last = (errors.strip() or output.strip() or "no message").splitlines()
        raise UserError(f"{name} failed with status {process.returncode}: {brief(last)}")
