"""Size, mAP, speed and accuracy of each exported format of a weights file.

    python -m benchmarks.formats --weights yolov5n.pt --data coco256.yaml --threads 1 2 4

Every format that this machine can make and run is exported in each of its precisions, and timed in
turns with the model on its backend: images of --data, one at a time, letterboxed to --img, from
pixels in memory to decoded rows. The metrics are those of val.py --square. Differences are the
largest between rows, relative to the largest value of their column.
"""

import argparse
import dataclasses
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.side_by_side import (
    Timing,
    choose_device,
    machine,
    new_parser,
    time_in_turns,
    write_json,
)
from duet import backend
from duet.backend import autograd, ops
from duet.backend.checks import CPU
from duet.utils.cli.flags import from_one
from duet.utils.data.loading.batches import ValRecipe
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import Sample
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import UserError
from duet.utils.export.config import ExportConfig
from duet.utils.export.formats import FORMATS, Format, exported_path, size_of
from duet.utils.export.opening import open_runtime
from duet.utils.optional import import_optional
from duet.utils.processes.command import run_command
from duet.utils.text import count
from duet.utils.weights.load import load_weights

PRECISIONS: dict[str, dict[str, Any]] = {
    "float32": {},
    "float16": {"half": True},
    "int8": {"int8": True},
}


@dataclass(frozen=True)
class Row:
    """A file, or the model itself; speeds are by number of threads."""

    name: str
    precision: str
    megabytes: float
    map50: float
    map: float
    milliseconds: dict[int, float]
    largest_difference: float


@dataclass(frozen=True)
class Candidate:
    """An exported file, or the model on its backend if `path` is None."""

    name: str
    precision: str
    size: int  # bytes
    path: Path | None = None


class Measured:
    """The model, the images, and the timings so far."""

    def __init__(self, flags: argparse.Namespace, weights: Any) -> None:
        from duet.models.inference.predictor import input_size, make_predictor

        self.flags = flags
        dataset = load_dataset(flags.data, splits=("val",))
        self.class_names = dataset.class_names
        self.samples: Sequence[Sample] = load_split(dataset, "val")[: flags.images]
        self.model = make_predictor([weights], CPU)
        flags.img = input_size(flags.img, self.model, [weights])
        with self.loader() as loader:
            first = islice(loader, flags.timed)
            self.pixels = [batch.images.astype(np.float32) / 255 for batch in first]
        self.timings: list[Timing] = []

    def loader(self) -> ValLoader:
        return ValLoader(self.samples, ValRecipe(self.flags.img, 1, self.model.stride, False))

    def predictor(self, candidate: Candidate, threads: int | None = None) -> Any:
        """Return the predictor of a candidate, with a number of threads."""
        from duet.models.export.exported import ExportedPredictor

        if candidate.path is None:
            return self.model
        return ExportedPredictor(open_runtime(candidate.path, threads, runtime=candidate.name))

    def rows(self, predictor: Any) -> np.ndarray:
        """Return the decoded rows of the timed images, (images, N, 5 + C)."""
        with autograd.no_grad():
            found = [raw_rows(predictor, predictor(ops.tensor(x))) for x in self.pixels]
        return np.concatenate(found)

    def scores(self, predictor: Any) -> tuple[float, float]:
        """Return mAP50 and mAP50-95 over the split."""
        from duet.models.evaluation.evaluate import Evaluation

        with self.loader() as loader:
            found = Evaluation(predictor, self.samples, self.class_names, CPU).run(loader)
        return found.result.map50, found.result.map

    def milliseconds(self, candidates: Sequence[Candidate], threads: int) -> list[float]:
        """Return the median per image for each candidate, timed in turns."""
        backend.device.set_host_threads(threads)
        runs = {
            f"{one.name} {one.precision}": partial(self.rows, self.predictor(one, threads))
            for one in candidates
        }
        case = count(threads, "thread")
        timings = time_in_turns(case, runs, CPU, self.flags.repeats, warm_up=1)
        print(f"{case}: cores that other processes took: {timings[0].others}")
        self.timings += timings
        return [timing.median / len(self.pixels) for timing in timings]


def raw_rows(predictor: Any, raw: Any) -> np.ndarray:
    """Return decoded rows (B, N, 5 + C); those of a file are decoded already."""
    if hasattr(predictor, "decode"):
        return ops.to_numpy(predictor.decode(raw))
    return np.stack([rows for (rows,) in raw])


def export_all(flags: argparse.Namespace, folder: Path) -> list[Candidate]:
    """Write a file of each format in each precision, and return the model and them."""
    found = [Candidate("model", "float32", Path(flags.weights).stat().st_size)]
    for row in filter(runs_here, FORMATS):
        for precision, options in PRECISIONS.items():
            if all(ability in row.flags for ability in options):
                path = export_one(flags, row, precision, folder / f"{row.name}-{precision}")
                found.append(Candidate(row.name, precision, size_of(path), path))
    return found


def runs_here(row: Format) -> bool:
    """Return whether files of a format can be made and run; print why not."""
    if why := row.why_not_run():
        print(f"left out: {why}")
        return False
    try:
        for package in row.packages:
            import_optional(package, row.name)
    except UserError as error:
        print(f"left out: {error}")
        return False
    return True


def export_one(flags: argparse.Namespace, row: Format, precision: str, folder: Path) -> Path:
    """Export the weights into a folder; return the file, or folder, that was written."""
    from duet.models.export.dataset import Dataset
    from duet.models.export.job import run_export

    folder.mkdir()
    weights = folder / Path(flags.weights).name
    shutil.copy(flags.weights, weights)
    data, images = "", None
    if precision == "int8":
        dataset = load_dataset(flags.data, splits=("val",))
        samples = load_split(dataset, "val")
        data, images = flags.data, Dataset(flags.data, dataset.class_names, samples)
    config = ExportConfig(
        weights=str(weights), include=(row.name,), sizes=(flags.img,), data=data,
        backend=flags.backend, **PRECISIONS[precision],
    )  # fmt: skip
    if run_export(config, load_weights(config.weights), images).failed:
        raise UserError(f"{row.name} {precision} differs from the model, as said above")
    return exported_path(config.weights, row)


def relative_difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference of rows, each relative to the largest value of its column."""
    scale = np.abs(wanted).max(axis=(0, 1))
    return float((np.abs(found - wanted).max(axis=(0, 1)) / scale).max())


def measure(measured: Measured, candidates: Sequence[Candidate]) -> list[Row]:
    """Time all candidates in turns for each number of threads, then score each."""
    speeds = {n: measured.milliseconds(candidates, n) for n in measured.flags.threads}
    wanted = measured.rows(measured.model)
    rows = []
    for index, one in enumerate(candidates):
        predictor = measured.predictor(one)
        map50, overall = measured.scores(predictor)
        difference = relative_difference(measured.rows(predictor), wanted)
        milliseconds = {n: speeds[n][index] for n in speeds}
        size = one.size / 1e6
        rows.append(Row(one.name, one.precision, size, map50, overall, milliseconds, difference))
    return rows


def main() -> None:
    parser = new_parser("formats", "Size, mAP and speed of each exported format.", repeats=7)
    add = parser.add_argument
    add("--weights", required=True, metavar="F")
    add("--data", default="shapes", metavar="D", help="its val images are used")
    add("--img", type=from_one, metavar="PX", help="default: the training size")
    add("--images", type=from_one, default=1000, metavar="N", help="score the first N")
    add("--timed", type=from_one, default=8, metavar="N", help="time the first N of them")
    add("--threads", type=from_one, nargs="+", default=[1, os.cpu_count() or 1], metavar="N")
    flags = parser.parse_args()
    device = choose_device(flags)
    measured = Measured(flags, load_weights(flags.weights))
    with TemporaryDirectory() as folder:
        rows = measure(measured, export_all(flags, Path(folder)))
    threads = "".join(f"{f'ms, {n} thr':>11}{'img/s':>7}" for n in flags.threads)
    print(f"{'format':<14}{'':<9}{'MB':>7}{'mAP50':>8}{'mAP50-95':>10}{'differs':>9}{threads}")
    for row in rows:
        speeds = "".join(f"{ms:>11.1f}{1000 / ms:>7.1f}" for ms in row.milliseconds.values())
        figures = f"{row.megabytes:>7.1f}{row.map50:>8.4f}{row.map:>10.4f}"
        difference = f"{row.largest_difference:>9.0e}"
        print(f"{row.name:<14}{row.precision:<9}{figures}{difference}{speeds}")
    if flags.json is not None:
        write_json(
            flags.json, machine(device), measured.timings, device,
            rows=[dataclasses.asdict(row) for row in rows], images_a_run=len(measured.pixels),
        )  # fmt: skip


if __name__ == "__main__":
    run_command(main)
