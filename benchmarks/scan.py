"""Seconds until the labels of a split are known: read, and kept from the last run; and bytes.

    OMP_NUM_THREADS=1 taskset -c 0,1 python -m benchmarks.scan --images 100000

The images are small JPEGs with 7 objects on average, written into a folder that is removed; all
files are in the page cache. Both ways return the same samples, or the benchmark ends. Behind the
times stand the bytes of many samples made without files: in this process, and sent to a worker.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import os
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np

from backend.words import count
from benchmarks.metric import print_row, write_seconds
from benchmarks.side_by_side import bare_parser, host
from utils.cli.flags import from_one
from utils.data.loading.shared_source import arrays_of
from utils.data.sources import label_cache
from utils.data.sources.dataset import load_dataset
from utils.data.sources.dataset_yaml import DatasetSpec
from utils.data.sources.samples import SampleTable
from utils.data.sources.splits import load_split
from utils.files.array_cache import VARIABLE
from utils.files.file_state import RECENT_NS
from utils.files.texts import Paths
from utils.polygons import starts_of
from utils.processes.command import run_command
from utils.state.equal_data import describe_samples

NUM_CLASSES = 80
MOST_OBJECTS = 15  # of an image; every number below is as frequent
FOLDERS = 10


def write_dataset(folder: Path, num_images: int) -> Path:
    """Write images, label files and a dataset YAML; return its path."""
    random = np.random.Generator(np.random.Philox(0))
    sizes = ((32, 48), (48, 32), (40, 40))
    noise = [random.integers(0, 256, (*size, 3), np.uint8) for size in sizes]
    jpegs = [cv2.imencode(".jpg", image)[1].tobytes() for image in noise]
    for kind in ("images", "labels"):
        for number in range(FOLDERS):
            (folder / kind / str(number)).mkdir(parents=True)
    for number in range(num_images):
        place = f"{number % FOLDERS}/{number:012}"
        (folder / f"images/{place}.jpg").write_bytes(jpegs[number % len(jpegs)])
        boxes = random.uniform(0.1, 0.3, (number % MOST_OBJECTS, 4)).round(6).tolist()
        lines = [f"{len(boxes)} {' '.join(map(str, box))}\n" for box in boxes]
        (folder / f"labels/{place}.txt").write_text("".join(lines))
    yaml = folder / "data.yaml"
    names = ", ".join(f"c{number}" for number in range(NUM_CLASSES))
    yaml.write_text(f"path: .\ntrain: images\nval: images\nnames: [{names}]\n")
    return yaml


def seconds_to_load(dataset: DatasetSpec, cache: str, expected: dict) -> float:
    """Return the seconds for a split, of which `expected` is the digest if there is one yet."""
    os.environ[VARIABLE] = cache
    start = time.perf_counter()
    samples = load_split(dataset, "train")
    seconds = time.perf_counter() - start
    found = describe_samples(samples)
    if expected and found != expected:
        raise SystemExit("the samples differ: the times compare unequal work")
    expected.update(found)
    return seconds


def time_scans(folder: Path, num_images: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each way, in turns."""
    dataset = load_dataset(write_dataset(folder, num_images))
    label_cache.FEWEST_IMAGES = 1
    time.sleep(RECENT_NS / 1e9)  # else nothing is kept: the files have just been written
    expected: dict = {}
    cache = str(folder / "cache")
    spent: dict[str, list[float]] = {"read": [], "read and keep": [], "kept": []}
    for _ in range(repeats):
        spent["read"].append(seconds_to_load(dataset, "", expected))
        for path in Path(cache).glob("*/*"):
            path.unlink()
        spent["read and keep"].append(seconds_to_load(dataset, cache, expected))
        spent["kept"].append(seconds_to_load(dataset, cache, expected))
    return spent


def make_samples(num_images: int) -> SampleTable:
    """Return samples as those of COCO: names of 16 characters and 7 objects per image."""
    counts = np.full(num_images, MOST_OBJECTS // 2)
    objects = int(counts.sum())
    folder = Path("/data/coco/images/train2017")
    return SampleTable(
        Paths.of(folder / f"{number:012}.jpg" for number in range(num_images)),
        None,
        np.full((num_images, 2), 640, np.int32),
        starts_of(counts),
        np.full(objects, 1),
        np.full((objects, 4), 0.5, np.float32),
        None,
    )


def print_bytes(num_images: int) -> None:
    """Print the bytes of a sample here, and shared by all workers."""
    in_arrays = sum(array.nbytes for array in arrays_of(make_samples(num_images)))
    print(f"{count(num_images, 'image')} of 7 objects: {in_arrays / num_images:.0f} bytes each,")
    print("again as many shared by all workers")


def main() -> None:
    parser = bare_parser("scan", "Seconds to know the labels of a split, and bytes.", repeats=3)
    parser.add_argument("--images", type=from_one, default=10_000, help="on disk")
    parser.add_argument("--samples", type=from_one, default=1_000_000, help="in memory")
    flags = parser.parse_args()
    case = count(flags.images, "image")
    print(f"{host()}\n{case}\n{'seconds':<14}{'median':>9}{'fastest':>9}{'slowest':>9}{'runs':>6}")
    with tempfile.TemporaryDirectory() as folder:
        spent = time_scans(Path(folder), flags.images, flags.repeats)
    for name, seconds in spent.items():
        print_row(name, seconds)
    print_bytes(flags.samples)
    write_seconds(flags, case, spent, "read")


if __name__ == "__main__":
    run_command(main)
