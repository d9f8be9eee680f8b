"""Do both backends still compute the same? One table, exit code 0 for yes and 1 for no.

    .venv/torch/bin/python -m tests.parity --steps 20

Runs PyTorch and OneFlow at the same time, each in its own environment, on the same weights and
batches; `table.py` says what is compared, and why each tolerance is what it is.
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from duet.utils.cli.flags import new_parser, whole_from
from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset
from duet.utils.errors import UserError
from duet.utils.files.model_yamls import read_model
from duet.utils.processes.start import EXIT_USER_ERROR
from duet.utils.project import PROJECT
from tests.environments import BACKENDS
from tests.parity.table import SECTIONS, Line, Settings, compare, formatted

STRIDE = 32  # of the public models


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


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every row agrees, 1 when one does not, 2 when a side could not be run."""
    parser = new_parser("python -m tests.parity", "Compare both backends number by number.")
    add = parser.add_argument
    add("--steps", type=int, default=20, help="optimizer steps of SGD, Adam and AdamW each")
    add("--cfg", default="models/yolov5n.yaml", help="model YAML")
    add("--img", dest="image_size", type=int, default=64, help="side of the images")
    add("--batch", dest="batch_size", type=int, default=16, help="images a batch")
    flags = parser.parse_args(arguments)
    try:
        whole_from(1)("--steps", flags.steps)
        whole_from(1)("--batch", flags.batch_size)
        if flags.image_size % STRIDE:
            raise UserError(f"--img {flags.image_size}: a multiple of {STRIDE} is needed")
        read_model(flags.cfg)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shapes = ShapesConfig(num_train=16, num_val=1, image_side=flags.image_size)
            data = draw_dataset(folder / "shapes", shapes)
            run_sides(Settings(data=str(data), **vars(flags)), folder, *BACKENDS)
            lines = compare_sides(folder)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    print(*formatted(lines), sep="\n")
    return 0 if all(line.agrees for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
