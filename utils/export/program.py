"""Converters that are programs: started without a shell, in a folder, for a limited time."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from utils.errors import UserError, brief

LONGEST_SECONDS = 900


def run_program(command: Sequence[str | Path], folder: Path) -> None:
    """Run a program in a folder; UserError has the last line it wrote if it fails."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{name} has not ended after {LONGEST_SECONDS} s") from error
    except OSError as error:
        raise UserError(f"{command[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        *_, last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
        raise UserError(f"{name} failed with status {done.returncode}: {brief(last)}")
