"""How many of the lines that one task executes are executed by the other tasks too.

    python -m benchmarks.shared_lines --backend torch

Trains a small model of each task for one epoch, validates it and detects with it, each script in a
process of its own, and notes every line of the product that is executed in a function. What runs at
import, signatures and constants, is not counted: all tasks import all modules. Lines count as
written: a statement of several lines has as many as Python gives it.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import inspect
import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

from backend.select import FRAMEWORKS
from utils.cli.flags import from_one
from utils.cli.flags import new_parser as plain_parser
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import images_of
from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.files.project import PROJECT
from utils.processes.command import run_command

PRODUCT = tuple(f"{PROJECT / room}{os.sep}" for room in ("backend", "models", "utils"))
SCRIPTS = ("train", "val", "detect")
RUNS = {  # the model and the data of each task
    "detect": ("yolov5n", "shapes"),
    "segment": ("yolov5n-seg", "shapes-seg"),
    "classify": ("yolov5n-cls", "shapes-cls"),
}
Lines = set[tuple[str, int]]  # a file, from the project's folder, and a line of it


class Tracer:
    """Notes the lines of the product that all threads of this process execute in functions."""

    def __init__(self, scripts: Sequence[str] = SCRIPTS) -> None:
        self._scripts = {str(PROJECT / f"{name}.py") for name in scripts}
        self._found: dict[CodeType, set[int]] = {}
        self._left: dict[CodeType, set[int]] = {}  # not executed yet

    def start(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _called(self, frame: FrameType, event: str, value: Any) -> Any:
        code = frame.f_code
        if code not in self._found:
            file = code.co_filename
            is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)  # no module, no class
            counts = is_function and (file.startswith(PRODUCT) or file in self._scripts)
            lines = {line for _, _, line in code.co_lines() if line} if counts else set()
            self._found[code] = set()
            self._left[code] = lines - {code.co_firstlineno}
        return self._line if self._left[code] else None

    def _line(self, frame: FrameType, event: str, value: Any) -> Any:
        code, left = frame.f_code, self._left[frame.f_code]
        if frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self._found[code].add(frame.f_lineno)
        return self._line if left else None

    def lines(self) -> Lines:
        return {
            (os.path.relpath(code.co_filename, PROJECT), line)
            for code, found in list(self._found.items())
            for line in list(found)
        }


def trace(out: Path, script: str, arguments: Sequence[str]) -> None:
    """Run a script in this process, and write the lines that it executed."""
    tracer = Tracer()
    sys.argv = [script, *arguments]
    tracer.start()
    try:
        runpy.run_path(str(PROJECT / script), run_name="__main__")
    finally:
        tracer.stop()
        out.write_text(json.dumps(sorted(tracer.lines())), encoding="utf-8")


def run_task(
    task: str, image_size: int, images: int, backend: str, folder: Path
) -> dict[str, Lines]:
    """Return the lines of each script for a task."""
    model, data = RUNS[task]
    found = [getattr(image, "path", image) for image in images_of(load_dataset(data), "val")]
    source = folder / f"{task}.txt"
    paths = [str(Path(path).resolve()) for path in found[:images]]
    source.write_text("\n".join(paths), encoding="utf-8")
    project = ("--project", str(folder), "--name")
    weights = ("--weights", str(folder / f"{task}-train/weights/best.safetensors"))
    shared = ("--img", str(image_size), "--device", "cpu", "--backend", backend)
    batch = ("--batch-size", "16", "--workers", "0")
    flags = {
        "train": (*shared, *batch, "--cfg", model, "--weights", "", "--data", data, "--epochs", "1",
                  *project, f"{task}-train"),
        "val": (*shared, *batch, *weights, "--data", data, *project, f"{task}-val"),
        "detect": (*shared, *weights, "--source", str(source), "--save-txt",
                   *project, f"{task}-detect"),
    }  # fmt: skip
    return {name: run_script(f"{name}.py", flags[name], folder) for name in SCRIPTS}


def run_script(script: str, flags: Sequence[str], folder: Path) -> Lines:
    """Return the lines of a script that runs in a process of its own."""
    out = folder / "lines.json"
    command = [sys.executable, "-m", "benchmarks.shared_lines", "--trace", str(out), script, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"{script} {' '.join(flags)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return {(file, line) for file, line in json.loads(out.read_text(encoding="utf-8"))}


def table(lines: Mapping[str, Mapping[str, Lines]]) -> list[str]:
    """Return, of each task and script, the lines that it executes and the part that all do; then
    the part that one other task executes at least.
    """
    columns = {name: {task: lines[task][name] for task in lines} for name in SCRIPTS}
    columns["all"] = {task: set().union(*lines[task].values()) for task in lines}
    heading = f"{'':<10}" + "".join(f"{name:>18}" for name in columns)
    rows = [heading]
    for task in lines:
        cells = []
        for column in columns.values():
            common = set.intersection(*column.values())
            cells.append(f"{len(column[task]):,} {len(common) / len(column[task]):8.1%}")
        rows.append(f"{task:<10}" + "".join(f"{cell:>18}" for cell in cells))
    every = columns["all"]
    rows.append(f"{len(set.intersection(*every.values())):,} lines are executed by all tasks")
    for task, found in every.items():
        others = [other for name, other in every.items() if name != task]
        also = found & set().union(*others)
        rows.append(f"{task}: {len(also) / len(found):.1%} are executed by another task too")
    return rows


def own_files(lines: Mapping[str, Mapping[str, Lines]], most: int) -> list[str]:
    """Return the files with the most lines that not all tasks execute."""
    every = {task: set().union(*lines[task].values()) for task in lines}
    common = set.intersection(*every.values())
    rows: dict[str, dict[str, int]] = {}
    for task, found in every.items():
        for file, _ in found - common:
            rows.setdefault(file, dict.fromkeys(every, 0))[task] += 1
    largest = sorted(rows.items(), key=lambda row: -max(row[1].values()))[:most]
    counts = [(file, ", ".join(f"{t} {n}" for t, n in row.items() if n)) for file, row in largest]
    return [f"  {file}: {count}" for file, count in counts]


def main() -> None:
    if sys.argv[1:2] == ["--trace"]:
        return trace(Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
    parser = plain_parser("python -m benchmarks.shared_lines", "The lines that tasks share.")
    add = parser.add_argument
    add("--backend", choices=FRAMEWORKS, default="torch")
    add("--tasks", nargs="+", choices=RUNS, default=list(RUNS), metavar="T")
    add("--img", type=from_one, default=64, metavar="PX")
    add("--images", type=from_one, default=4, metavar="N", help="detect in so many")
    add("--files", type=int, default=20, metavar="N", help="name the files that differ most")
    add("--json", type=Path, metavar="F", help="write the lines into a file")
    flags = parser.parse_args()
    with TemporaryDirectory() as folder:
        lines = {
            task: run_task(task, flags.img, flags.images, flags.backend, Path(folder))
            for task in flags.tasks
        }
    print("\n".join([*table(lines), *own_files(lines, flags.files)]))
    if flags.json is not None:
        with atomic_text_file(flags.json) as file:
            document = {t: {n: sorted(x) for n, x in lines[t].items()} for t in lines}
            json.dump(document, file)


if __name__ == "__main__":
    run_command(main)
