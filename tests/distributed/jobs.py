"""Starts a program as a job of two ranks under a launcher and looks at what is left of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from duet import backend
from duet.utils.project import PROJECT

MARK = "JOB_MARK"
FLAGS = ("--cfg", "models/yolov5n.yaml", "--device", "cpu", "--batch", "4")
TRAIN_FLAGS = ("--img", "64", "--batch", "2", "--device", "cpu", "--workers", "1")
SECONDS_TO_START = 120  # both are limits against hanging, far above the usual times
SECONDS_TO_END = 25  # less than the 30 for which torchrun waits for what ignores its SIGTERM


def launcher(backend: str, ranks: int) -> list[str]:
    """Return the command line of a launcher up to the program's own arguments."""
    if backend == "torch":
        command = ["torch.distributed.run", "--standalone"]
    else:
        command = ["oneflow.distributed.launch", "--master_port", str(free_port())]
    return [sys.executable, "-m", *command, "--nproc_per_node", str(ranks)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_ranks(
    ranks: int, *arguments: str, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a Python module of the tests as several ranks, with the backend of YOLO_BACKEND."""
    backend = os.environ["YOLO_BACKEND"]
    return subprocess.run(
        [*launcher(backend, ranks), *arguments],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Processes:
    """A program in some ranks; a mark in the environment of its processes identifies them.

    Args:
        folder: for what it writes.
        script: the program, with its flags.
        ranks: how many.
        raw: under a plain launcher, rather than by --nproc.
        environment: added.
    """

    def __init__(
        self,
        folder: Path,
        script: Sequence[object],
        ranks: int = 2,
        raw: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        command = [*(launcher(backend.use(), ranks) if raw else [sys.executable]), *script]
        if ranks > 1 and not raw:
            command += ["--nproc", ranks]
        self.output = folder / f"output-{self.mark}.txt"
        added = {"YOLO_BACKEND": backend.use(), "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                list(map(str, command)),
                cwd=PROJECT,
                env={**os.environ, **added, **(environment or {}), MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, path: Path) -> None:
        """Wait until the job has written a file."""
        deadline = time.monotonic() + SECONDS_TO_START
        while not path.exists():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, f"no {path}:\n{self.text()}"
            time.sleep(0.02)

    def end(self, after: Path | None = None) -> tuple[int, str]:
        """Return exit code and output of the command, which must end completely and in time."""
        try:
            if after:
                self.wait_for(after)
            code = self.process.wait(SECONDS_TO_END if after else SECONDS_TO_START)
            deadline = time.monotonic() + SECONDS_TO_END
            while self.processes():
                assert time.monotonic() < deadline, f"{self.processes()} are left:\n{self.text()}"
                time.sleep(0.1)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end:\n{self.text()}") from None
        finally:
            for process in self.processes():
                os.kill(process, 9)
        return code, self.text()

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


def start_job(
    folder: Path, plan: Mapping[str, object], flags: Sequence[object] = FLAGS, raw: bool = False
) -> Processes:
    """Start `job.py`; the plan says what goes wrong in it."""
    script = PROJECT / "tests" / "distributed" / "job.py"
    environment = {"PYTHONWARNINGS": "", "JOB": json.dumps(plan), "JOB_FOLDER": str(folder)}
    return Processes(folder, [script, *flags], 2, raw, environment)


def start_training(
    folder: Path, *flags: object, script: Path = PROJECT / "train.py", ranks: int = 2,
    raw: bool = False, environment: Mapping[str, str] | None = None,
) -> Processes:  # fmt: skip
    """Start the real train.py, or a script that runs it, on a CPU."""
    return Processes(folder, [script, *TRAIN_FLAGS, *flags], ranks, raw, environment)
