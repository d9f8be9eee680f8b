"""Starts the real train.py as a job of several ranks on a CPU, to be stopped, killed or damaged."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

import backend
from tests.distributed.jobs import MARK, Job
from tests.distributed.ranks import launcher
from utils.files.project import PROJECT

TRAIN = PROJECT / "train.py"
FLAGS = ("--img", "64", "--batch", "2", "--device", "cpu", "--workers", "1")


class Training(Job):
    """A training; a mark in the environment of its processes identifies them.

    Args:
        folder: for what is printed.
        flags: of train.py.
        ranks: how many.
        raw: under a plain launcher, rather than by train.py --nproc.
        script: to run instead of train.py.
        environment: added.
    """

    def __init__(
        self,
        folder: Path,
        *flags: object,
        ranks: int = 2,
        raw: bool = False,
        script: Path = TRAIN,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        command = [sys.executable, str(script)]
        if raw:
            command = [*launcher(backend.use(), ranks), str(script)]
        elif ranks > 1:
            command += ["--nproc", str(ranks)]
        self.output = folder / f"output-{self.mark}.txt"
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                [*command, *FLAGS, *map(str, flags)],
                cwd=PROJECT,
                env={
                    **os.environ,
                    "YOLO_BACKEND": backend.use(),
                    "PYTHONPATH": str(PROJECT),
                    "OMP_NUM_THREADS": "1",
                    MARK: self.mark,
                    **(environment or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def rank(self, number: int) -> int | None:
        """Return the process of a rank, without those of its loader; None before its start."""
        found = {}
        for process in self.processes():
            try:
                environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                status = Path(f"/proc/{process}/stat").read_text()
            except OSError:
                continue
            if f"RANK={number}".encode() in environment:
                found[process] = int(status.rpartition(")")[2].split()[1])
        return next((process for process, parent in found.items() if parent not in found), None)
