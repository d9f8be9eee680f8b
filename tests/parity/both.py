"""Run both sides of the comparison, each in its own environment, and compare what they wrote."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from duet.utils.errors import UserError
from duet.utils.project import PROJECT
from tests.environments import BACKENDS
from tests.parity.table import SECTIONS, Line, Settings, compare


class Result(Mapping[str, np.ndarray]):
    """The arrays of one section of a side's file, read when asked for."""

    def __init__(self, file: Path, section: str) -> None:
        self._file = np.load(file)
        self._prefix = f"{section}/"
        self._names = [name for name in self._file.files if name.startswith(self._prefix)]

    def __getitem__(self, name: str) -> np.ndarray:
        return self._file[self._prefix + name]

    def __iter__(self):
        return (name.removeprefix(self._prefix) for name in self._names)

    def __len__(self) -> int:
        return len(self._names)


def run_sides(settings: Settings, folder: Path, *backends: str) -> None:
    """Run the sides at the same time; each leaves folder/BACKEND.npz.

    Raises:
        UserError: an environment that is not there, or a side that failed, with what it wrote.
    """
    pythons = {backend: PROJECT / ".venv" / backend / "bin" / "python" for backend in backends}
    for backend, python in pythons.items():
        if not python.exists():
            raise UserError(f"no environment for {backend}: make setup BACKEND={backend}")
    document = folder / "settings.json"
    document.write_text(json.dumps(dataclasses.asdict(settings)), encoding="utf-8")
    threads = str(max(1, len(os.sched_getaffinity(0)) // len(backends)))
    limits = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    running = {}
    try:
        for backend, python in pythons.items():
            command = [str(python), "-m", "tests.parity.side", str(document), str(folder / backend)]
            environment = {**limits, **os.environ, "YOLO_BACKEND": backend}
            with (folder / f"{backend}.log").open("wb") as log:
                running[backend] = subprocess.Popen(
                    command, cwd=PROJECT, env=environment, stdout=log, stderr=subprocess.STDOUT
                )
        for backend, process in running.items():
            if process.wait() != 0:
                printed = (folder / f"{backend}.log").read_text(errors="replace")
                raise UserError(f"the side of {backend} failed:\n{printed}")
    finally:
        for process in running.values():
            process.kill()  # does nothing to one that has ended
            process.wait()


def compare_sides(folder: Path) -> list[Line]:
    """The lines of the table: OneFlow against PyTorch."""
    lines = []
    for section, rows in SECTIONS.items():
        reference, actual = (Result(folder / f"{name}.npz", section) for name in BACKENDS)
        lines += compare(section, rows, actual, reference)
    return lines
