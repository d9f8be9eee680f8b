"""Starts `job.py` under a launcher and looks at what is left of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import backend
from tests.distributed.ranks import launcher
from utils.files.project import PROJECT

MARK = "JOB_MARK"
FLAGS = ("--cfg", "models/yolov5n.yaml", "--device", "cpu", "--batch", "4")
SECONDS_TO_START = 120  # both are limits against hanging, far above the usual times
SECONDS_TO_END = 25  # less than the 30 for which torchrun waits for what ignores its SIGTERM


class Job:
    """A job of two ranks; a mark in the environment of its processes identifies them.

    Args:
        folder: for what it writes.
        raw: under a plain launcher, rather than by --nproc.
        plan: what goes wrong, as `job.py` reads it.
        flags: of the command.
        within: the command that runs the job's.
    """

    def __init__(
        self,
        folder: Path,
        raw: bool,
        plan: dict[str, object],
        flags: Sequence[str] = FLAGS,
        within: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        script = str(PROJECT / "tests" / "distributed" / "job.py")
        command = [sys.executable, script, "--nproc", "2"]
        if raw:
            command = [*launcher(backend.use(), 2), script]
        self.mark = uuid.uuid4().hex
        self.output = folder / "output.txt"
        environment = {
            **os.environ,
            "YOLO_BACKEND": backend.use(),
            "PYTHONPATH": str(PROJECT),
            "PYTHONWARNINGS": "",
            "OMP_NUM_THREADS": "1",
            "JOB": json.dumps(plan),
            "JOB_FOLDER": str(folder),
            MARK: self.mark,
        }
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                [*within, *command, *flags],
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, name: str) -> None:
        """Wait until the job has written a file of this name."""
        deadline = time.monotonic() + SECONDS_TO_START
        while not (self.folder / name).exists():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, f"no {name}:\n{self.text()}"
            time.sleep(0.02)

    def end(self, after: str = "") -> tuple[int, str]:
        """Return exit code and output of the command, which must end completely and in time."""
        try:
            if after:
                self.wait_for(after)
            code = self.process.wait(SECONDS_TO_END if after else SECONDS_TO_START)
            assert self.is_gone(), f"{self.processes()} are left:\n{self.text()}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end:\n{self.text()}") from None
        finally:
            for process in self.processes():
                os.kill(process, 9)
        return code, self.text()

    def is_gone(self) -> bool:
        """Return whether no process is left a few seconds after the launcher's end."""
        deadline = time.monotonic() + SECONDS_TO_END
        while self.processes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def processes(self) -> list[int]:
        """Return the job's processes that are still there."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:  # it has ended, or is not ours
                continue
            if f"{MARK}={self.mark}".encode() in environment.split(b"\0"):
                found.append(int(folder.name))
        return found

    def text(self) -> str:
        return self.output.read_text(errors="replace")
