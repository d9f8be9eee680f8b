"""`python -m utils.data.records`: pack a dataset into record files, look into them, unpack it."""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import logging
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from backend.words import count
from utils.cli.flags import new_parser
from utils.data.image.limits import MAX_PIXELS
from utils.data.records.command.folders import refuse_existing
from utils.data.records.command.inspection import describe_file, find_damages, find_files
from utils.data.records.command.packing import pack_samples
from utils.data.records.command.unpacking import unpack_images
from utils.data.sources.annotated_images import AnnotatedImage
from utils.data.sources.class_folders import ClassImage
from utils.data.sources.dataset import load_dataset
from utils.data.sources.dataset_yaml import SPLITS, DatasetSpec
from utils.data.sources.labels import ImageSource, scan_images
from utils.data.sources.record_images import RecordImage
from utils.data.sources.samples import SampleTable
from utils.data.sources.splits import images_of
from utils.errors import DatasetError
from utils.processes.command import run_command
from utils.screen.text import printable, say

MIB = 1 << 20

log = logging.getLogger("records")


def main() -> None:
    arguments = parse_flags()
    arguments.run(arguments)


def parse_flags() -> argparse.Namespace:
    parser = new_parser("python -m utils.data.records", "Datasets packed into FFRecord files.")
    commands = parser.add_subparsers(required=True, metavar="pack | verify | list | unpack")

    def command(name: str, run: object, description: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=description,
            description=description,
            allow_abbrev=False,
            formatter_class=parser.formatter_class,
        )
        added.set_defaults(run=run)
        return added

    pack_parser = command("pack", pack, "write a dataset's images and labels into record files")
    unpack_parser = command("unpack", unpack, "write record files out as images and labels")
    for added in (pack_parser, unpack_parser):
        added.add_argument("--data", required=True, metavar="D", help="dataset, as for train.py")
        added.add_argument("--out", required=True, type=Path, metavar="DIR", help="a new folder")
        added.add_argument("--splits", nargs="+", choices=SPLITS, help="default: all splits of it")
    pack_parser.add_argument(
        "--file-mib", type=int, default=1024, metavar="MIB", help="size at which a new file begins"
    )
    pack_parser.add_argument(
        "--max-pixels",
        type=int,
        default=MAX_PIXELS,
        metavar="N",
        help="leave out images with more pixels than this",
    )
    for name, run, description in (
        ("verify", verify, "check every checksum"),
        ("list", list_records, "print what record files hold"),
    ):
        added = command(name, run, description)
        added.add_argument(
            "paths", nargs="+", type=Path, metavar="PATH", help="record file, or folder of some"
        )
    return parser.parse_args()


def pack(arguments: argparse.Namespace) -> None:
    if arguments.file_mib < 1:
        raise DatasetError(f"--file-mib {arguments.file_mib}: at least 1 is needed")
    refuse_existing(arguments.out)
    dataset, splits = load_splits(arguments)
    num_classes = len(dataset.class_names)
    images = {split: unpacked_images(dataset, split) for split in splits}
    samples = {
        split: usable_samples(split, images[split], num_classes, arguments.max_pixels)
        for split in splits
    }
    every = chain.from_iterable(images.values())
    annotated = {image.path for image in every if isinstance(image, (AnnotatedImage, ClassImage))}
    yaml_path = arguments.out / f"{dataset.name}.yaml"
    pack_samples(samples, dataset.class_names, yaml_path, arguments.file_mib * MIB, annotated)
    for split, packed in samples.items():
        say(f"{split}: {count(len(packed), 'image')} packed")
    say(f"train with --data {yaml_path}")


def unpacked_images(dataset: DatasetSpec, split: str) -> list[Path | ImageSource]:
    """Return the images of a split; raise DatasetError when some are packed."""
    images = images_of(dataset, split)
    if any(isinstance(image, RecordImage) for image in images):
        raise DatasetError(
            f"'{split}' of {dataset.name} is packed already; copy its files, or unpack it first"
        )
    return images


def usable_samples(
    split: str, images: Sequence[Path | ImageSource], num_classes: int, max_pixels: int
) -> SampleTable:
    """Return the samples of a split that training would use; name and leave out the others."""
    report = scan_images(images, num_classes, max_pixels=max_pixels)
    for problem in report.problems:
        log.warning("%s", printable(problem))
    if num_left_out := len(images) - len(report.samples):
        log.warning("%s: %d of %s left out", split, num_left_out, count(len(images), "image"))
    return report.samples


def unpack(arguments: argparse.Namespace) -> None:
    refuse_existing(arguments.out)
    dataset, splits = load_splits(arguments)
    images = {split: packed_images(dataset, split) for split in splits}
    yaml_path = arguments.out / f"{dataset.name}.yaml"
    unpack_images(images, dataset.class_names, yaml_path)
    for split, unpacked in images.items():
        say(f"{split}: {count(len(unpacked), 'image')} unpacked")
    say(f"train with --data {yaml_path}")


def packed_images(dataset: DatasetSpec, split: str) -> list[RecordImage]:
    """Return the images of a split; raise DatasetError when some lie in files of their own."""
    images = images_of(dataset, split)
    packed = [image for image in images if isinstance(image, RecordImage)]
    if len(packed) < len(images):
        raise DatasetError(
            f"'{split}' of {dataset.name} names images that are not packed; leave it out: --splits"
        )
    return packed


def load_splits(arguments: argparse.Namespace) -> tuple[DatasetSpec, list[str]]:
    """Return the dataset of --data and the splits of --splits, by default all that it names."""
    named = load_dataset(arguments.data, splits=())
    splits = arguments.splits or [split for split in SPLITS if getattr(named, split)]
    try:
        return load_dataset(arguments.data, splits=splits), splits
    except DatasetError as error:
        raise DatasetError(f"{error}; or name the splits that are there: --splits") from error


def verify(arguments: argparse.Namespace) -> None:
    damages = []
    for path in find_files(arguments.paths):
        found = find_damages(path)
        damages += found
        say(f"{path}: {f'{len(found)} damaged' if found else 'whole'}")
    if damages:
        raise DatasetError("\n".join(damages))


def list_records(arguments: argparse.Namespace) -> None:
    for path in find_files(arguments.paths):
        for line in describe_file(path):
            say(line)


if __name__ == "__main__":
    run_command(main)
