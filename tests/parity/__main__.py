"""Do both backends still compute the same? One table, exit code 0 for yes and 1 for no.

    .venv/torch/bin/python -m tests.parity --steps 20

Runs PyTorch and OneFlow at the same time, each in its own environment, on the same weights and
batches. Each row of the table has its tolerance, and why it is what it is.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet.utils.cli.flags import new_parser, whole_from
from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset
from duet.utils.errors import UserError
from duet.utils.files.model_yamls import read_model
from duet.utils.processes.start import EXIT_USER_ERROR
from duet.utils.project import PROJECT
from tests.environments import BACKENDS

STRIDE = 32  # of the public models


@dataclass(frozen=True)
class Settings:
    """One comparison; plain values, since they travel as JSON."""

    data: str  # dataset YAML
    cfg: str  # model YAML
    image_size: int
    batch_size: int
    steps: int  # optimizer steps
    nudge: float = 0.0  # added to one weight: what a disagreement looks like


DTYPES = ("float64", "float32")


class Row(NamedTuple):
    """Tensors compared together; the worst of them is shown."""

    pattern: str  # of the rows' names, as `fnmatch` reads it
    tolerance: float  # largest difference over the largest magnitude, in each tensor
    floor: float = 0.0  # magnitudes below this count as this


# Rows that a backend only takes part in, or computes by comparing and choosing.
EXACT = (Row("weights", 0.0), Row("batches", 0.0), Row("nms of drawn boxes", 0.0))

# Biases start at zero: what a parameter holds or has changed by, whichever is more, is its scale.
PARAMETER_SCALE = 0.1

FLOAT64 = (
    # 2e-16 a sum, over 25 layers: measured 3e-15.
    Row("layer ??", 1e-12),
    Row("decoded boxes", 1e-12),
    # Rounded to float32 the decoded boxes are equal, and so is what is chosen of them. In float32
    # two candidates of nearly one score may change places, so there is no such row.
    Row("nms", 0.0),
    Row("loss *", 1e-12),
    # Gradients of BatchNorm weights are sums that cancel: measured 8e-13.
    Row("gradients", 1e-9),
    # OneFlow keeps 1 - momentum as float32, 3e-8 from PyTorch's; it adds up with the steps to
    # 6e-7 after 20. Nothing in training reads these averages.
    Row("batchnorm", 3e-6),
    Row("* batchnorm", 3e-6),
    Row("* ema", 3e-6, PARAMETER_SCALE),
    # At a tenth of the recipe's rates (see `side.slowed`) rounding hardly grows: measured 1e-13
    # after 20 steps, 3e-12 for momentum and moments, and 6e-15 for losses.
    Row("* parameters", 1e-9, PARAMETER_SCALE),
    Row("* state", 1e-9),
    Row("* losses", 1e-11),
)

FLOAT32 = (
    # Sums of a few hundred products in another order: 1e-6, and little more over 25 layers.
    Row("layer ??", 2e-5),
    Row("decoded boxes", 2e-5),
    Row("loss *", 1e-5),
    # Sums over up to thousands of cells that cancel: measured 2e-4.
    Row("gradients", 2e-3),
    Row("batchnorm", 1e-5),
    # Measured after 20 steps: losses 6e-6, parameters of SGD 5e-5. Adam moves by the rate where
    # the gradient is mere rounding, too: 4e-4 for the worst.
    Row("* losses", 1e-3),
    Row("* batchnorm", 1e-3, PARAMETER_SCALE),
    Row("SGD parameters", 1e-3, PARAMETER_SCALE),
    Row("SGD ema", 1e-3, PARAMETER_SCALE),
    Row("Adam* parameters", 1e-2, PARAMETER_SCALE),
    Row("Adam* ema", 1e-2, PARAMETER_SCALE),
    # Of gradients, whose own differences are above: 2e-3, and 2e-2 where Adam averages rounding.
    Row("SGD state", 5e-2),
    Row("Adam* state", 2e-1),
)

SECTIONS = {"exact": EXACT, "float64": FLOAT64, "float32": FLOAT32}


class Line(NamedTuple):
    """A row of the table."""

    section: str  # "float64", ...
    row: str  # "layer 03", "gradients", ...
    item: str  # the tensor that differs most
    absolute: float
    relative: float  # to the largest magnitude in that tensor
    tolerance: float  # of the relative difference

    @property
    def agrees(self) -> bool:
        return self.relative <= self.tolerance


def compare(
    section: str,
    rows: Sequence[Row],
    actual: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
) -> list[Line]:
    """A line for each row; one that finds nothing to compare disagrees.

    Args:
        section: what the lines belong to.
        rows: every name must belong to one of them.
        actual: arrays by "ROW/ITEM".
        reference: the same of the other side.
    """
    names = sorted({*actual, *reference})
    lines, left = [], set(names)
    for row in rows:
        found = [name for name in names if fnmatchcase(row_of(name), row.pattern)]
        left -= set(found)
        for title in sorted(set(map(row_of, found))) or [row.pattern]:
            members = [name for name in found if row_of(name) == title]
            lines.append(worst_line(section, title, row, members, actual, reference))
    assert not left, f"{section}: no row for {sorted(left)}"
    return lines


def row_of(name: str) -> str:
    return name.partition("/")[0]


def worst_line(
    section: str,
    title: str,
    row: Row,
    names: Iterable[str],
    actual: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
) -> Line:
    """The line of the tensor that differs most, and of one that is missing before that."""
    worst = Line(section, title, "nothing to compare", np.inf, np.inf, row.tolerance)
    for index, name in enumerate(names):
        absolute, relative = difference(actual.get(name), reference.get(name), row.floor)
        if index == 0 or relative > worst.relative:
            item = name.partition("/")[2]
            worst = Line(section, title, item, absolute, relative, row.tolerance)
    return worst


def difference(
    actual: np.ndarray | None, reference: np.ndarray | None, floor: float
) -> tuple[float, float]:
    """Largest absolute difference, and that over the reference's largest magnitude or floor.

    Infinite for absent arrays, unequal shapes or dtypes, and anything that is not finite.
    """
    if actual is None or reference is None:
        return np.inf, np.inf
    if actual.shape != reference.shape or actual.dtype != reference.dtype:
        return np.inf, np.inf
    if not (np.isfinite(actual).all() and np.isfinite(reference).all()):
        return np.inf, np.inf
    if actual.size == 0:
        return 0.0, 0.0
    expected = reference.astype(np.float64)
    absolute = float(np.abs(actual.astype(np.float64) - expected).max())
    scale = max(float(np.abs(expected).max()), floor)
    return absolute, absolute / scale if scale > 0 else (np.inf if absolute else 0.0)


def formatted(lines: Iterable[Line]) -> Iterator[str]:
    """The table as text, and in its last line the verdict over all."""
    lines = list(lines)
    yield (
        f"{'compared':<16}{'row':<22}{'worst tensor':<42}"
        f"{'absolute':>10}{'relative':>10}{'tolerance':>11}  verdict"
    )
    for line in lines:
        yield (
            f"{line.section:<16}{line.row:<22}{line.item:<42}{line.absolute:>10.1e}"
            f"{line.relative:>10.1e}{line.tolerance:>11.0e}  {'ok' if line.agrees else 'DIFFERS'}"
        )
    wrong = sum(not line.agrees for line in lines)
    yield f"{len(lines)} rows, " + (f"{wrong} differ" if wrong else "all agree")


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
